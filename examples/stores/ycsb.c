/* Requests as the Yahoo! Cloud Serving Benchmark makes them, on a store that maps its file.
 *
 *    ycsb STORE load FILE [--records N] [--size BYTES] [--map BYTES] [--seed N]
 *    ycsb STORE run  FILE [--mix a-f] [--distribution uniform|zipf|latest] [--operations N] ...
 *
 * A store is loaded by one process and used by another, so that a recording of the second holds requests alone. Each
 * line of the output is KEY=VALUE. Times and faults are those of the requests: opening the store is not among them.
 * The mixes A to F, their distributions and the skew of 0.99 are those of Cooper et al., "Benchmarking Cloud Serving
 * Systems with YCSB", SoCC 2010. A request does not depend on the store.
 */
#define _GNU_SOURCE
#include "store.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { KEY_BYTES = 24, LOAD_BATCH = 10000, MOST_SCANNED = 100, MOST_VALUE = 1 << 20 };
#define SKEW 0.99

enum distribution { BY_MIX, UNIFORM, ZIPF, LATEST };
enum request { READ, UPDATE, INSERT, SCAN, MODIFY, REQUESTS };

static const char *const REQUEST_NAMES[REQUESTS] = {"reads", "updates", "inserts", "scans", "read_modify_writes"};
static const char *const DISTRIBUTIONS[] = {"", "uniform", "zipf", "latest"};
#ifdef WITH_ROCKSDB
#define NAMES "lmdb|sqlite|rocksdb"
static const struct store *const STORES[] = {&lmdb_store, &sqlite_store, &rocksdb_store};
#else
#define NAMES "lmdb|sqlite"
static const struct store *const STORES[] = {&lmdb_store, &sqlite_store};
#endif

/* Of a hundred requests, how many are of each kind. */
static const struct mix {
   int share[REQUESTS];
   enum distribution distribution;
} MIXES[] = {
   {{[READ] = 50, [UPDATE] = 50}, ZIPF}, {{[READ] = 95, [UPDATE] = 5}, ZIPF},  {{[READ] = 100}, ZIPF},
   {{[READ] = 95, [INSERT] = 5}, LATEST}, {{[SCAN] = 95, [INSERT] = 5}, ZIPF}, {{[READ] = 50, [MODIFY] = 50}, ZIPF},
};

static const struct store *store;
static struct store_options options = {.map_bytes = 4ull << 30};
static uint64_t records = 65536, value_bytes = 1000, operations = 100000, seed = 1;
static char mix = 'c';
static enum distribution distribution = BY_MIX;
static uint64_t checksum; /* over all values that were read, so that reading them is not left out */

_Noreturn void fail(const char *format, ...)
{
   va_list arguments;

   fputs("ycsb: ", stderr);
   va_start(arguments, format);
   vfprintf(stderr, format, arguments);
   va_end(arguments);
   fputc('\n', stderr);
   exit(1);
}

static _Noreturn void refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));
static _Noreturn void refuse(const char *format, ...)
{
   va_list arguments;

   fputs("ycsb: ", stderr);
   va_start(arguments, format);
   vfprintf(stderr, format, arguments);
   va_end(arguments);
   fputs("\nusage: ycsb " NAMES " load FILE [--records N] [--size BYTES] [--map BYTES] [--seed N]\n"
         "       ycsb " NAMES " run FILE [--mix a|b|c|d|e|f] [--distribution uniform|zipf|latest]\n"
         "            [--operations N] [--seed N] [--map BYTES] [--read-ahead] [--write-map]\n"
         "       RocksDB takes [--write-buffer BYTES] [--filter-bits N] for both, and [--one-level] to load\n",
         stderr);
   exit(2);
}

/* A bijection of the 64-bit numbers (the finaliser of splitmix64). */
static uint64_t scrambled(uint64_t x)
{
   x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
   x = (x ^ x >> 27) * 0x94d049bb133111ebu;
   return x ^ x >> 31;
}

static uint64_t random_number(void)
{
   static uint64_t drawn;

   return scrambled((seed << 40) + ++drawn * 0x9e3779b97f4a7c15u);
}

static double random_fraction(void)
{
   return (double)(random_number() >> 11) * 0x1p-53;
}

/* One of 0 to n - 1, r in proportion to 1 / (r + 1)^SKEW. Exact for the first two, and by the integral of the law for
 * the others, as in Gray et al., "Quickly Generating Billion-Record Synthetic Databases", SIGMOD 1994. */
static uint64_t zipf(uint64_t n)
{
   static uint64_t summed;
   static double sum, scale;
   const double second = pow(0.5, SKEW);
   double u = random_fraction(), weight;

   if (summed != n) {
      sum = 0;
      for (uint64_t r = 1; r <= n; r++)
         sum += pow((double)r, -SKEW);
      scale = (1 - pow(2.0 / (double)n, 1 - SKEW)) / (1 - (1 + second) / sum);
      summed = n;
   }
   weight = u * sum;
   if (weight < 1 || n == 1)
      return 0;
   if (weight < 1 + second || n == 2)
      return 1;
   uint64_t r = (uint64_t)((double)n * pow(scale * (u - 1) + 1, 1 / (1 - SKEW)));

   return r < n ? r : n - 1;
}

/* Which record the next request is for. `loaded` of `there` records were there at first. */
static uint64_t chosen(uint64_t loaded, uint64_t there)
{
   switch (distribution) {
   case UNIFORM:
      return random_number() % there;
   case LATEST:
      return there - 1 - zipf(loaded);
   default:
      return zipf(loaded);
   }
}

/* Records that follow each other lie anywhere among the keys, as with YCSB's hashed order of insertion. */
static void make_key(uint64_t record, char key[KEY_BYTES + 1])
{
   snprintf(key, KEY_BYTES + 1, "user%020" PRIu64, scrambled(record + 1));
}

static void fill(char *value, uint64_t from)
{
   for (uint64_t at = 0; at + 8 <= value_bytes; at += 8) {
      uint64_t word = scrambled(from + at);

      memcpy(value + at, &word, 8);
   }
   memset(value + value_bytes / 8 * 8, 'x', value_bytes % 8);
}

static void sum_up(const void *value, size_t bytes)
{
   const unsigned char *from = value;

   for (size_t at = 0; at + 8 <= bytes; at += 8) {
      uint64_t word;

      memcpy(&word, from + at, 8);
      checksum += word;
   }
   for (size_t at = bytes / 8 * 8; at < bytes; at++)
      checksum += from[at];
}

/* A record of its own, with no key that the requests use, says how many records there are and how large. */
static const char SIZES_KEY[] = "sizes";
static struct sizes {
   uint64_t records, value_bytes;
} sizes;

static void take_sizes(const void *value, size_t bytes)
{
   if (bytes == sizeof sizes)
      memcpy(&sizes, value, bytes);
}

static void put_sizes(void)
{
   store->write(SIZES_KEY, sizeof SIZES_KEY - 1, &sizes, sizeof sizes);
}

static void load(void)
{
   static char value[MOST_VALUE];
   char key[KEY_BYTES + 1];

   store->open(&options);
   for (uint64_t record = 0; record < records; record++) {
      if (record % LOAD_BATCH == 0)
         store->begin();
      make_key(record, key);
      fill(value, random_number());
      store->write(key, KEY_BYTES, value, value_bytes);
      if (record % LOAD_BATCH == LOAD_BATCH - 1 || record == records - 1)
         store->commit();
   }
   sizes = (struct sizes){records, value_bytes};
   put_sizes();
   store->close();
   printf("store=%s\nrecords=%" PRIu64 "\nvalue_bytes=%" PRIu64 "\n", store->name, records, value_bytes);
}

static enum request next_request(const struct mix *chosen_mix)
{
   int at = (int)(random_number() % 100), kind = 0;

   while (at >= chosen_mix->share[kind])
      at -= chosen_mix->share[kind++];
   return (enum request)kind;
}

static void make_requests(const struct mix *chosen_mix, uint64_t done[REQUESTS])
{
   static char value[MOST_VALUE];
   char key[KEY_BYTES + 1];

   for (uint64_t i = 0; i < operations; i++) {
      enum request request = next_request(chosen_mix);

      done[request]++;
      make_key(request == INSERT ? sizes.records : chosen(records, sizes.records), key);
      if (request == SCAN)
         store->scan(key, KEY_BYTES, 1 + random_number() % MOST_SCANNED, sum_up);
      if ((request == READ || request == MODIFY) && !store->read(key, KEY_BYTES, sum_up))
         fail("%s: there is no record %s; was it loaded with this program to the end?", options.path, key);
      if (request == UPDATE || request == INSERT || request == MODIFY) {
         fill(value, random_number());
         store->write(key, KEY_BYTES, value, value_bytes);
      }
      sizes.records += request == INSERT;
   }
}

static double seconds(void)
{
   struct timespec now;

   clock_gettime(CLOCK_MONOTONIC, &now);
   return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void run(void)
{
   const struct mix *requested = &MIXES[mix - 'a'];
   uint64_t done[REQUESTS] = {0};
   struct rusage before, after;
   double took;

   options.writes = requested->share[UPDATE] + requested->share[INSERT] + requested->share[MODIFY] > 0;
   distribution = distribution == BY_MIX ? requested->distribution : distribution;
   store->open(&options);
   if (!store->read(SIZES_KEY, sizeof SIZES_KEY - 1, take_sizes) || sizes.records == 0)
      fail("%s was not loaded by this program to the end; load it first", options.path);
   records = sizes.records;
   value_bytes = sizes.value_bytes;
   if (distribution != UNIFORM)
      zipf(records); /* its sum is no part of the requests */
   getrusage(RUSAGE_SELF, &before);
   took = seconds();
   make_requests(requested, done);
   took = seconds() - took;
   getrusage(RUSAGE_SELF, &after);
   if (sizes.records != records)
      put_sizes();
   store->close();
   printf("store=%s\nmix=%c\ndistribution=%s\noperations=%" PRIu64 "\nseconds=%.6f\n", store->name, mix,
          DISTRIBUTIONS[distribution], operations, took);
   printf("major_faults=%ld\n", after.ru_majflt - before.ru_majflt);
   printf("minor_faults=%ld\n", after.ru_minflt - before.ru_minflt);
   for (int kind = 0; kind < REQUESTS; kind++)
      printf("%s=%" PRIu64 "\n", REQUEST_NAMES[kind], done[kind]);
   printf("checksum=%016" PRIx64 "\n", checksum);
}

static uint64_t number(const char *name, const char *text, uint64_t least, uint64_t most)
{
   char *end = NULL;
   uint64_t value = 0;

   errno = 0;
   if (text[0] >= '0' && text[0] <= '9')
      value = strtoull(text, &end, 10);
   if (!end || *end || errno || value < least || value > most)
      refuse("--%s is '%s'; it must be a whole number from %" PRIu64 " to %" PRIu64, name, text, least, most);
   return value;
}

static enum distribution distribution_of(const char *text)
{
   for (enum distribution candidate = UNIFORM; candidate <= LATEST; candidate++)
      if (strcmp(text, DISTRIBUTIONS[candidate]) == 0)
         return candidate;
   refuse("--distribution is '%s'; it must be uniform, zipf or latest", text);
}

static void read_options(int argc, char **argv, bool loads)
{
   enum { RECORDS = 1, SIZE, ONE_LEVEL, WRITE_BUFFER, FILTER_BITS, MAP, MIX, DISTRIBUTION, OPERATIONS, SEED, READ_AHEAD, WRITE_MAP };
   static const struct option known[] = {
      {"records", required_argument, NULL, RECORDS},       {"size", required_argument, NULL, SIZE},
      {"one-level", no_argument, NULL, ONE_LEVEL},
      {"write-buffer", required_argument, NULL, WRITE_BUFFER}, {"filter-bits", required_argument, NULL, FILTER_BITS},
      {"map", required_argument, NULL, MAP},               {"mix", required_argument, NULL, MIX},
      {"distribution", required_argument, NULL, DISTRIBUTION}, {"operations", required_argument, NULL, OPERATIONS},
      {"seed", required_argument, NULL, SEED},             {"read-ahead", no_argument, NULL, READ_AHEAD},
      {"write-map", no_argument, NULL, WRITE_MAP},         {0}};
   int option;

   opterr = 0;
   while ((option = getopt_long(argc, argv, "+", known, NULL)) != -1) {
      if (option == '?')
         refuse("'%s' is no option, or lacks its value", argv[optind - 1]);
      if (loads ? option >= MIX && option != SEED : option <= ONE_LEVEL)
         refuse("--%s does not go with %s", known[option - 1].name, loads ? "load" : "run");
      switch (option) {
      case RECORDS: records = number("records", optarg, 1, 1ull << 40); break;
      case SIZE: value_bytes = number("size", optarg, 1, MOST_VALUE); break;
      case ONE_LEVEL: options.one_level = true; break;
      case WRITE_BUFFER: options.write_buffer = number("write-buffer", optarg, 64 << 10, 1 << 30); break;
      case FILTER_BITS: options.filter_bits = number("filter-bits", optarg, 0, 64); break;
      case MAP: options.map_bytes = number("map", optarg, 1 << 20, 1ull << 46); break;
      case OPERATIONS: operations = number("operations", optarg, 0, 1ull << 40); break;
      case SEED: seed = number("seed", optarg, 0, (1 << 24) - 1); break;
      case DISTRIBUTION: distribution = distribution_of(optarg); break;
      case READ_AHEAD: options.read_ahead = true; break;
      case WRITE_MAP: options.write_map = true; break;
      case MIX:
         if (strlen(optarg) != 1 || optarg[0] < 'a' || optarg[0] > 'f')
            refuse("--mix is '%s'; it must be a, b, c, d, e or f", optarg);
         mix = optarg[0];
      }
   }
   if (optind < argc)
      refuse("'%s' is one argument too many", argv[optind]);
}

int main(int argc, char **argv)
{
   bool loads;

   if (argc < 4)
      refuse("a store, load or run, and a file are needed");
   for (size_t i = 0; i < sizeof STORES / sizeof *STORES; i++)
      if (strcmp(argv[1], STORES[i]->name) == 0)
         store = STORES[i];
   if (!store)
      refuse("'%s' is no store that is known; give one of " NAMES, argv[1]);
   loads = strcmp(argv[2], "load") == 0;
   if (!loads && strcmp(argv[2], "run") != 0)
      refuse("'%s' is nothing that can be done; give load or run", argv[2]);
   options.path = argv[3];
   options.create = options.writes = loads;
   read_options(argc - 3, argv + 3, loads);
   if (loads)
      load();
   else
      run();
   if (fflush(stdout) != 0)
      fail("the output cannot be written: %s", strerror(errno));
   return 0;
}
