from hypothesis import settings

# A busy machine may take its time over an example.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
