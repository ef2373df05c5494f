"""Views of one frozen `Estimate`: terminal text, JSON by a versioned schema, CSV, HTML, snapshot files."""
