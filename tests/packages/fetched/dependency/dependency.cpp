extern "C" const char* dependency_where() { return __FILE__; }
