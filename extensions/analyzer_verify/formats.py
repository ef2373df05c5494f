"""Forms of a verification (entry point "analyzer.formats")."""

VERIFICATION = {
    "text": "analyzer_verify.report:render",
    "json": "analyzer_verify.report:render_json",
    "html": "analyzer_verify.page:verification",
}
