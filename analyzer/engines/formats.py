"""Forms of a serving engine's memory, worked out and as it is (entry point "analyzer.formats")."""

SERVING = {
    "text": "analyzer.report.serving:text",
    "json": "analyzer.report.serving:arithmetic_json",
    "html": "analyzer.report.serving_page:arithmetic",
}
ENGINE = {
    "text": "analyzer.report.serving:engine_text",
    "json": "analyzer.report.serving:engine_json",
    "html": "analyzer.report.serving_page:engine",
}
