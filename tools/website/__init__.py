"""The documentation site: what MkDocs does not do by itself."""
