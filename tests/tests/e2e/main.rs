//! All tests over real processes and sockets, in one binary so that it links once.
//!
//! A module is a theme. Every test that starts `ambit` ends by the leak check of [`ambit_tests::quiet`], and none asserts on
//! elapsed time: over real processes only order and counts are facts.

mod kit;
