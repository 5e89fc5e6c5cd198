//! Drivers that do what the session machine decides, and decide nothing.
