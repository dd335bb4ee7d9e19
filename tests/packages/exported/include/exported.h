extern "C" const char* light_where();
