-- What becomes of a session's texts: kept, to go once it is closed, or gone; and since when it is hidden.
ALTER TABLE session ADD COLUMN texts TEXT NOT NULL DEFAULT 'kept' CHECK (texts IN ('kept', 'to_go', 'gone'));
ALTER TABLE session ADD COLUMN deleted_ms INTEGER;
CREATE INDEX session_texts_to_go ON session (closed_ms) WHERE texts = 'to_go';
