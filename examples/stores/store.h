/* What a store can do for the driver, whichever it is. */
#ifndef STORE_H
#define STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store_options {
   const char *path;
   uint64_t map_bytes; /* how large the mapping, and so the store, may become */
   uint64_t write_buffer; /* bytes of RocksDB's memory for writes, and of a table; 0: RocksDB's own default */
   uint64_t filter_bits;  /* per key of RocksDB's filters; 0: none, its own default */
   bool one_level;     /* RocksDB merges what was loaded into one level */
   bool create;        /* a new store; an old one of this name is an error */
   bool writes;        /* whether it is opened for writing */
   bool read_ahead;    /* whether the kernel reads more than the page that is missing */
   bool write_map;     /* whether records are written through the mapping, and not by system calls */
};

/* Is given each record of a scan. The value may not be used afterwards. */
typedef void (*visit)(const void *value, size_t bytes);

/* Each call ends the program if it fails. */
struct store {
   const char *name;
   void (*open)(const struct store_options *options);
   /* Writes between these two become one transaction. Without them, each is one of its own. */
   void (*begin)(void);
   void (*commit)(void);
   /* Whether there is a record of this key; then it has been visited. */
   bool (*read)(const char *key, size_t bytes, visit visited);
   void (*write)(const char *key, size_t bytes, const void *value, size_t value_bytes);
   /* Visits this many records at most, from this key on in order of keys. */
   void (*scan)(const char *key, size_t bytes, uint64_t most, visit visited);
   void (*close)(void);
};

extern const struct store lmdb_store, sqlite_store, rocksdb_store;

/* Ends the program with a message and status 1. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
