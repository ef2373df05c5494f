"""Forms of advice (entry point "analyzer.formats")."""

ADVICE = {
    "text": "analyzer.report.advice:render",
    "json": "analyzer.report.advice:render_json",
    "html": "analyzer.report.advice_page:advice",
}
