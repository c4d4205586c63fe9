/* LMDB: a B+tree of copied pages in one file, which is mapped shared. Reads are loads from the mapping. */
#include "store.h"

#include <lmdb.h>
#include <unistd.h>

static MDB_env *environment;
static MDB_dbi records;
static MDB_txn *reading, *writing; /* reading is kept and renewed; writing is there between begin and commit */

static void check(int error, const char *what)
{
   if (error == MDB_MAP_FULL)
      fail("%s: the map is full; give a larger --map", what);
   if (error)
      fail("%s: %s", what, mdb_strerror(error));
}

static void begin(void)
{
   check(mdb_txn_begin(environment, NULL, 0, &writing), "a transaction cannot begin");
}

static void commit(void)
{
   check(mdb_txn_commit(writing), "a transaction cannot be committed");
   writing = NULL;
}

static void open_store(const struct store_options *options)
{
   /* One process with one thread needs no locks. What is written is not synchronised with the drive. */
   unsigned flags = MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOTLS | MDB_NOSYNC;
   MDB_txn *first;

   if (options->create && access(options->path, F_OK) == 0)
      fail("%s is there already; remove it, or name another", options->path);
   if (!options->create && access(options->path, R_OK) != 0)
      fail("%s cannot be read; make the store first: load", options->path);
   if (!options->writes)
      flags |= MDB_RDONLY;
   if (!options->read_ahead)
      flags |= MDB_NORDAHEAD;
   if (options->write_map)
      flags |= MDB_WRITEMAP;
   check(mdb_env_create(&environment), "LMDB cannot begin");
   /* A store that is only read is mapped as far as it goes. */
   if (options->writes)
      check(mdb_env_set_mapsize(environment, options->map_bytes), "--map");
   check(mdb_env_open(environment, options->path, flags, 0644), options->path);
   check(mdb_txn_begin(environment, NULL, options->writes ? 0 : MDB_RDONLY, &first), options->path);
   check(mdb_dbi_open(first, NULL, 0, &records), options->path);
   check(mdb_txn_commit(first), options->path);
}

static void begin_reading(void)
{
   if (reading)
      check(mdb_txn_renew(reading), "a transaction cannot be renewed");
   else
      check(mdb_txn_begin(environment, NULL, MDB_RDONLY, &reading), "a transaction cannot begin");
}

static bool read_record(const char *key, size_t bytes, visit visited)
{
   MDB_val name = {.mv_size = bytes, .mv_data = (void *)key}, value;
   int error;

   begin_reading();
   error = mdb_get(reading, records, &name, &value);
   if (error != MDB_NOTFOUND) {
      check(error, "a record cannot be read");
      visited(value.mv_data, value.mv_size);
   }
   mdb_txn_reset(reading);
   return error == 0;
}

static void write_record(const char *key, size_t bytes, const void *value, size_t value_bytes)
{
   MDB_val name = {.mv_size = bytes, .mv_data = (void *)key};
   MDB_val content = {.mv_size = value_bytes, .mv_data = (void *)value};
   bool alone = !writing;

   if (alone)
      begin();
   check(mdb_put(writing, records, &name, &content, 0), "a record cannot be written");
   if (alone)
      commit();
}

static void scan(const char *key, size_t bytes, uint64_t most, visit visited)
{
   MDB_val name = {.mv_size = bytes, .mv_data = (void *)key}, value;
   MDB_cursor *cursor;
   int error;

   begin_reading();
   check(mdb_cursor_open(reading, records, &cursor), "a scan cannot begin");
   error = mdb_cursor_get(cursor, &name, &value, MDB_SET_RANGE);
   for (uint64_t i = 0; i < most && error != MDB_NOTFOUND; i++) {
      check(error, "a scan cannot go on");
      visited(value.mv_data, value.mv_size);
      error = mdb_cursor_get(cursor, &name, &value, MDB_NEXT);
   }
   mdb_cursor_close(cursor);
   mdb_txn_reset(reading);
}

static void close_store(void)
{
   if (reading)
      mdb_txn_abort(reading);
   mdb_env_close(environment);
}

const struct store lmdb_store = {"lmdb", open_store, begin, commit, read_record, write_record, scan, close_store};
