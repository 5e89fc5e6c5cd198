-- Sessions whose owner's lease has run out go to this node, each under the next epoch; the notes that they have
-- already come along, since their bound outlives an owner. A node that owns nothing any more is forgotten.
-- $1 this node   $2 now   $3 most sessions
BEGIN IMMEDIATE;

UPDATE session
SET owner = $1, epoch = epoch + 1
WHERE id IN (
    SELECT s.id
    FROM session AS s LEFT JOIN node AS n ON n.id = s.owner
    WHERE s.owner IS NOT NULL AND s.owner <> $1 AND coalesce(n.lease_until_ms, 0) <= $2
    ORDER BY s.id
    LIMIT $3
)
RETURNING id, epoch, (SELECT count(*) FROM entry WHERE entry.session = session.id AND entry.kind = 'note');

DELETE FROM node
WHERE id <> $1 AND lease_until_ms <= $2 AND NOT EXISTS (SELECT 1 FROM session WHERE session.owner = node.id);

COMMIT;
