"""Files of an index: its settings (``settings``), and reading their bytes (``http``, ``archive``)."""
