//! Deadline, bulkhead, retry, timeout and the policy that composes them.
