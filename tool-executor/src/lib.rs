//! Registry, preparation and execution of tool calls.
