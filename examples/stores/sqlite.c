/* SQLite: a B-tree in one file. Reads come from a mapping of it (PRAGMA mmap_size), writes are system calls. */
#define _GNU_SOURCE
#include "store.h"

#include <errno.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static sqlite3 *database;
static sqlite3_stmt *select_one, *select_range, *replace;

static void check(bool good, const char *what)
{
   if (!good)
      fail("%s: %s", what, sqlite3_errmsg(database));
}

static void run(const char *statement)
{
   check(sqlite3_exec(database, statement, NULL, NULL, NULL) == SQLITE_OK, statement);
}

static sqlite3_stmt *prepared(const char *text)
{
   sqlite3_stmt *statement;

   check(sqlite3_prepare_v3(database, text, -1, SQLITE_PREPARE_PERSISTENT, &statement, NULL) == SQLITE_OK, text);
   return statement;
}

/* SQLite has no setting for the kernel's read-ahead. So we have its file mapped before anything of it is read, and say
 * of the mapping that it is read at random. When the file grows, the mapping keeps the advice. */
static void read_at_random(const char *path)
{
   sqlite3_file *file = NULL;
   void *start = NULL;
   struct stat status;

   check(sqlite3_file_control(database, "main", SQLITE_FCNTL_FILE_POINTER, &file) == SQLITE_OK, path);
   if (stat(path, &status) != 0 || status.st_size == 0)
      fail("%s is empty; it was not loaded by this program", path);
   if (file->pMethods->iVersion < 3 || file->pMethods->xFetch(file, 0, 1, &start) != SQLITE_OK || !start)
      fail("%s is not mapped: give a --map of its size, or an SQLite that was built with mappings", path);
   if (madvise(start, (size_t)status.st_size, MADV_RANDOM) != 0)
      fail("%s: its mapping cannot be advised: %s", path, strerror(errno));
   file->pMethods->xUnfetch(file, 0, start);
}

static void open_store(const struct store_options *options)
{
   char pragma[64];
   int flags = options->writes ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY;

   if (options->create && access(options->path, F_OK) == 0)
      fail("%s is there already; remove it, or name another", options->path);
   if (options->write_map)
      fail("--write-map: SQLite writes by system calls alone; leave it out, or use lmdb");
   if (options->create)
      flags |= SQLITE_OPEN_CREATE;
   check(sqlite3_open_v2(options->path, &database, flags | SQLITE_OPEN_NOMUTEX, NULL) == SQLITE_OK, options->path);
   snprintf(pragma, sizeof pragma, "PRAGMA mmap_size=%" PRIu64, options->map_bytes);
   run(pragma);
   if (!options->read_ahead && !options->create)
      read_at_random(options->path);
   /* One process, and nothing need survive a crash. */
   run("PRAGMA locking_mode=EXCLUSIVE; PRAGMA synchronous=OFF");
   if (options->create)
      /* With row numbers: a B-tree of keys beside it has no room for large values, and would chain pages of them. */
      run("CREATE TABLE records(key TEXT PRIMARY KEY, value BLOB)");
   select_one = prepared("SELECT value FROM records WHERE key = ?");
   select_range = prepared("SELECT value FROM records WHERE key >= ? ORDER BY key LIMIT ?");
   if (options->writes)
      replace = prepared("INSERT OR REPLACE INTO records VALUES(?, ?)");
}

static void begin(void)
{
   run("BEGIN");
}

static void commit(void)
{
   run("COMMIT");
}

static uint64_t visit_rows(sqlite3_stmt *statement, visit visited)
{
   uint64_t rows = 0;
   int step;

   while ((step = sqlite3_step(statement)) == SQLITE_ROW) {
      visited(sqlite3_column_blob(statement, 0), (size_t)sqlite3_column_bytes(statement, 0));
      rows++;
   }
   check(step == SQLITE_DONE, "a record cannot be read");
   sqlite3_reset(statement);
   return rows;
}

static bool read_record(const char *key, size_t bytes, visit visited)
{
   sqlite3_bind_text(select_one, 1, key, (int)bytes, SQLITE_STATIC);
   return visit_rows(select_one, visited) > 0;
}

static void write_record(const char *key, size_t bytes, const void *value, size_t value_bytes)
{
   sqlite3_bind_text(replace, 1, key, (int)bytes, SQLITE_STATIC);
   sqlite3_bind_blob(replace, 2, value, (int)value_bytes, SQLITE_STATIC);
   check(sqlite3_step(replace) == SQLITE_DONE, "a record cannot be written");
   sqlite3_reset(replace);
}

static void scan(const char *key, size_t bytes, uint64_t most, visit visited)
{
   sqlite3_bind_text(select_range, 1, key, (int)bytes, SQLITE_STATIC);
   sqlite3_bind_int64(select_range, 2, (sqlite3_int64)most);
   visit_rows(select_range, visited);
}

static void close_store(void)
{
   sqlite3_finalize(select_one);
   sqlite3_finalize(select_range);
   sqlite3_finalize(replace);
   check(sqlite3_close(database) == SQLITE_OK, "the store cannot be closed");
}

const struct store sqlite_store = {"sqlite", open_store, begin, commit, read_record, write_record, scan, close_store};
