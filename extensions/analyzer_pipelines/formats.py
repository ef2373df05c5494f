"""Forms of a pipeline's memory (entry point "analyzer.formats")."""

PIPELINE = {
    "text": "analyzer_pipelines.report:text",
    "json": "analyzer_pipelines.report:to_json",
}
