//! Chat types of our own, one file a provider dialect, the chain of targets.
