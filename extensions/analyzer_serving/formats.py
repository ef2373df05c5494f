"""Forms of a serving engine's memory, worked out and as it is (entry point "analyzer.formats")."""

SERVING = {
    "text": "analyzer_serving.report:text",
    "json": "analyzer_serving.report:arithmetic_json",
    "html": "analyzer_serving.page:arithmetic",
}
ENGINE = {
    "text": "analyzer_serving.report:engine_text",
    "json": "analyzer_serving.report:engine_json",
    "html": "analyzer_serving.page:engine",
}
