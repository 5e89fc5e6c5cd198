SELECT s.id, s.agent, s.tenant, s.principal, s.previous, s.status, s.reason, s.settlement,
       s.created_ms, s.deadline_ms, s.verdict_ms, s.closed_ms, s.metadata, s.summary, s.owner, s.epoch,
       (SELECT n.lease_until_ms FROM node AS n WHERE n.id = s.owner),
       (SELECT coalesce(max(e.seq), 0) FROM entry AS e WHERE e.session = s.id),
       s.texts, s.deleted_ms
FROM session AS s
