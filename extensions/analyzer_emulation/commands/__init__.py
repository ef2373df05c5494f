"""Commands on emulation."""
