"""Files of an index: where packages come from (``settings``), and how their bytes are read (``http``, ``archive``)."""
