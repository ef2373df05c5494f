"""Forms of advice (entry point "analyzer.formats")."""

ADVICE = {
    "text": "analyzer_timing.report:render",
    "json": "analyzer_timing.report:render_json",
    "html": "analyzer_timing.page:advice",
}
