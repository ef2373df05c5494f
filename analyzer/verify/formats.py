"""Forms of a verification (entry point "analyzer.formats")."""

VERIFICATION = {
    "text": "analyzer.report.verification:render",
    "json": "analyzer.report.verification:render_json",
    "html": "analyzer.report.verification_page:verification",
}
