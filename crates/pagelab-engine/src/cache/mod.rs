//! Data caches.
