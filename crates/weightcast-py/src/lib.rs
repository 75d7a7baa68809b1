//! weightcast: the Python binding
