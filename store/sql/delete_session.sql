-- A session is hidden and forgets its key; its texts go now if it is closed, else with the append that closes it.
-- Gives a row if there was something to delete: whether it is closed.
-- $1 session   $2 now
BEGIN IMMEDIATE;

DELETE FROM idempotency WHERE session = $1;

DELETE FROM content WHERE session = $1 AND EXISTS (SELECT 1 FROM session WHERE id = $1 AND closed_ms IS NOT NULL);

UPDATE session
SET deleted_ms = $2, metadata = '{}', texts = CASE WHEN closed_ms IS NULL THEN 'to_go' ELSE 'gone' END
WHERE id = $1 AND deleted_ms IS NULL
RETURNING closed_ms IS NOT NULL;

COMMIT;
