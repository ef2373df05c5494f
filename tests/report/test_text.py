def test_a_range_is_in_one_unit() -> None:
    """Both ends in the greater one's unit; in the lesser's where they would read the same."""
    from analyzer.report.words import sizes

    assert sizes(1069023232, 2**30) == "1,019.5 MiB to 1,024.0 MiB"
    assert sizes(700 << 20, 3 << 29) == "0.7 GiB to 1.5 GiB"
    assert sizes(5 << 20, 5 << 20) == "5.0 MiB" and sizes(0, 100) == "0 B to 100 B"
