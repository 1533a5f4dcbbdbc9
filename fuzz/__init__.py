"""Fuzzing with damaged and hostile inputs: ``make fuzz``."""
