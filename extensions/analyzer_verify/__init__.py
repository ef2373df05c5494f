"""Run the very thing that was predicted, and put both side by side.

    analysis = pipeline.analysis(target, options)   in this process, no GPU touched
    measured = runs.jobs.run({...})                 each real run in a process of its own
    Verification = both, compared                   what the command line shows

Nothing measured finds its way back into a prediction: `calibrate` writes a profile only where it is told to.
"""
