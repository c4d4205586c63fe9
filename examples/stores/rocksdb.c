/* RocksDB: a log-structured merge tree whose tables are mapped (allow_mmap_reads), with its defaults otherwise. Writes go
 * to a log by system calls and to memory; threads of its own write tables and merge them. */
#define _GNU_SOURCE
#include "store.h"

#include <inttypes.h>
#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { LEVELS = 7, BASE_OVER_BUFFER = 4 }; /* by default levels of 64 MiB times 4 times 10, and so on */

static rocksdb_t *database;
static rocksdb_options_t *opened_with;
static rocksdb_readoptions_t *reading;
static rocksdb_writeoptions_t *writing;
static rocksdb_writebatch_t *batch; /* there between begin and commit */
static bool is_new, one_level;

static void check(char *error, const char *what)
{
   if (error)
      fail("%s: %s", what, error);
}

static void open_store(const struct store_options *options)
{
   char *error = NULL;

   if (options->create && access(options->path, F_OK) == 0)
      fail("%s is there already; remove it, or name another", options->path);
   if (!options->create && access(options->path, R_OK) != 0)
      fail("%s cannot be read; make the store first: load", options->path);
   opened_with = rocksdb_options_create();
   rocksdb_options_set_create_if_missing(opened_with, options->create);
   rocksdb_options_set_allow_mmap_reads(opened_with, 1);
   rocksdb_options_set_advise_random_on_open(opened_with, !options->read_ahead);
   if (options->write_buffer) {
      rocksdb_options_set_write_buffer_size(opened_with, options->write_buffer);
      rocksdb_options_set_target_file_size_base(opened_with, options->write_buffer);
      rocksdb_options_set_max_bytes_for_level_base(opened_with, BASE_OVER_BUFFER * options->write_buffer);
   }
   if (options->filter_bits) {
      rocksdb_block_based_table_options_t *tables = rocksdb_block_based_options_create();

      rocksdb_block_based_options_set_filter_policy(
         tables, rocksdb_filterpolicy_create_bloom_full((double)options->filter_bits));
      rocksdb_options_set_block_based_table_factory(opened_with, tables);
      rocksdb_block_based_options_destroy(tables);
   }
   is_new = options->create;
   one_level = options->one_level;
   reading = rocksdb_readoptions_create();
   writing = rocksdb_writeoptions_create();
   if (options->writes)
      database = rocksdb_open(opened_with, options->path, &error);
   else
      database = rocksdb_open_for_read_only(opened_with, options->path, 0, &error);
   check(error, options->path);
}

static void begin(void)
{
   batch = rocksdb_writebatch_create();
}

static void commit(void)
{
   char *error = NULL;

   rocksdb_write(database, writing, batch, &error);
   check(error, "records cannot be written");
   rocksdb_writebatch_destroy(batch);
   batch = NULL;
}

static bool read_record(const char *key, size_t bytes, visit visited)
{
   char *error = NULL;
   rocksdb_pinnableslice_t *pinned = rocksdb_get_pinned(database, reading, key, bytes, &error);
   size_t value_bytes;
   const char *value;

   check(error, "a record cannot be read");
   if (!pinned)
      return false;
   value = rocksdb_pinnableslice_value(pinned, &value_bytes);
   visited(value, value_bytes);
   rocksdb_pinnableslice_destroy(pinned);
   return true;
}

static void write_record(const char *key, size_t bytes, const void *value, size_t value_bytes)
{
   char *error = NULL;

   if (batch) {
      rocksdb_writebatch_put(batch, key, bytes, value, value_bytes);
      return;
   }
   rocksdb_put(database, writing, key, bytes, value, value_bytes, &error);
   check(error, "a record cannot be written");
}

static void scan(const char *key, size_t bytes, uint64_t most, visit visited)
{
   rocksdb_iterator_t *iterator = rocksdb_create_iterator(database, reading);
   char *error = NULL;

   rocksdb_iter_seek(iterator, key, bytes);
   for (uint64_t i = 0; i < most && rocksdb_iter_valid(iterator); i++) {
      size_t value_bytes;
      const char *value = rocksdb_iter_value(iterator, &value_bytes);

      visited(value, value_bytes);
      rocksdb_iter_next(iterator);
   }
   rocksdb_iter_get_error(iterator, &error);
   check(error, "a scan cannot go on");
   rocksdb_iter_destroy(iterator);
}

static uint64_t property(const char *name)
{
   uint64_t value = 0;

   if (rocksdb_property_int(database, name, &value) != 0)
      fail("RocksDB has no property %s", name);
   return value;
}

/* Writes what is in memory, and waits until no level is too large. */
static void finish_levels(void)
{
   rocksdb_flushoptions_t *flushing = rocksdb_flushoptions_create();
   struct timespec pause = {.tv_nsec = 100000000};
   char *error = NULL;
   int idle = 0;

   rocksdb_flush(database, flushing, &error);
   check(error, "records cannot be written");
   rocksdb_flushoptions_destroy(flushing);
   if (one_level)
      rocksdb_compact_range(database, NULL, 0, NULL, 0);
   while (idle < 3) {
      nanosleep(&pause, NULL);
      idle = property("rocksdb.compaction-pending") || property("rocksdb.num-running-compactions") ? 0 : idle + 1;
   }
}

static void close_store(void)
{
   if (is_new)
      finish_levels();
   printf("block_cache_bytes=%" PRIu64 "\n", property("rocksdb.block-cache-usage"));
   for (int level = 0; level < LEVELS; level++) {
      char name[40];
      char *files;

      snprintf(name, sizeof name, "rocksdb.num-files-at-level%d", level);
      files = rocksdb_property_value(database, name);
      printf("tables_of_level_%d=%s\n", level, files);
      rocksdb_free(files);
   }
   rocksdb_close(database);
   rocksdb_readoptions_destroy(reading);
   rocksdb_writeoptions_destroy(writing);
   rocksdb_options_destroy(opened_with);
}

const struct store rocksdb_store = {"rocksdb", open_store, begin, commit, read_record, write_record, scan, close_store};
