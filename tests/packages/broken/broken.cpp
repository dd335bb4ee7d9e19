int broken() { return missing_name; }
