/* Looks up cross sections of neutrons in the unionized energy grid of a reactor's nuclides, as XSBench does.
 *
 *    lookups [THREADS [POINTS [LOOKUPS]]]
 *
 * The default has the points per nuclide of XSBench's size "small", and one lookup per energy of the union, where its
 * size "large" has 4.2.
 * Memory is first touched in these phases:
 *
 *    1. The first thread makes the points of each nuclide at random and sorts them, one nuclide after the other. qsort
 *       takes memory of its own and gives it back each time.
 *    2. It copies all energies to the union, and sorts that.
 *    3. It writes a row of indices per energy of the union: page after page, most of the memory.
 *    4. All threads look up. That reads everywhere, and touches nothing new.
 */
#include "program.h"

enum { NUCLIDES = 68, KINDS = 5, MATERIALS = 12, CHECKED = 1024 };
/* Nuclides per material, from the fuel to the water. */
static const int NUCLIDES_OF[MATERIALS] = {34, 24, 24, 20, 20, 20, 10, 8, 6, 5, 4, 4};

struct point {
   double energy, sections[KINDS];
};

static struct argument arguments[] = {
   {"THREADS", 2, 1, MOST_THREADS}, {"POINTS", 11303, 2, 1 << 20}, {"LOOKUPS", 750000, 1, 1ull << 40}};
static size_t threads, per_nuclide, count;
static struct point *points; /* by nuclide, and by energy */
static double *energies;     /* of all nuclides */
static uint32_t *rows;       /* per energy: for each nuclide, the last point that is not above */
static int nuclides[MATERIALS][NUCLIDES];
static double densities[MATERIALS][NUCLIDES];
static uint64_t checksums[MOST_THREADS];

static int compare(const void *one, const void *other)
{
   double a = *(const double *)one, b = *(const double *)other;

   return (a > b) - (a < b);
}

/* The last of `many` things, `stride` bytes apart and sorted by energy, that is not above this energy; or else the first. */
static size_t last_not_above(double energy, const void *things, size_t stride, size_t many)
{
   size_t low = 0;

   while (many > 1) {
      size_t half = many / 2;

      if (*(const double *)((const char *)things + (low + half) * stride) <= energy)
         low += half;
      many -= half;
   }
   return low;
}

static void make_grid(void)
{
   uint32_t last[NUCLIDES] = {0};

   for (size_t nuclide = 0; nuclide < NUCLIDES; nuclide++) {
      struct point *its = points + nuclide * per_nuclide;

      for (size_t i = 0; i < per_nuclide; i++) {
         uint64_t at = (nuclide * per_nuclide + i) * (KINDS + 1);

         its[i].energy = random_fraction(at);
         for (size_t kind = 0; kind < KINDS; kind++)
            its[i].sections[kind] = random_fraction(at + 1 + kind);
      }
      qsort(its, per_nuclide, sizeof *its, compare);
   }
   for (size_t i = 0; i < count; i++)
      energies[i] = points[i].energy;
   qsort(energies, count, sizeof *energies, compare);
   for (size_t i = 0; i < count; i++)
      for (size_t nuclide = 0; nuclide < NUCLIDES; nuclide++) {
         const struct point *its = points + nuclide * per_nuclide;

         while (last[nuclide] + 1 < per_nuclide && its[last[nuclide] + 1].energy <= energies[i])
            last[nuclide]++;
         rows[i * NUCLIDES + nuclide] = last[nuclide];
      }
}

static void make_materials(void)
{
   for (int material = 0; material < MATERIALS; material++)
      for (int i = 0; i < NUCLIDES_OF[material]; i++) {
         /* 29 is prime to their number, so that a material has no nuclide twice. */
         nuclides[material][i] = (7 * material + 29 * i) % NUCLIDES;
         densities[material][i] = random_fraction((uint64_t)(material * NUCLIDES + i));
      }
}

static void *look_up(void *number)
{
   size_t thread = (size_t)number, lookups = arguments[2].value;

   for (size_t i = part(lookups, thread, threads); i < part(lookups, thread + 1, threads); i++) {
      double energy = random_fraction(2 * i), sums[KINDS] = {0};
      size_t material = random_number(2 * i + 1) % MATERIALS, largest = 0;
      size_t row = last_not_above(energy, energies, sizeof *energies, count);

      for (int member = 0; member < NUCLIDES_OF[material]; member++) {
         size_t nuclide = (size_t)nuclides[material][member];
         const struct point *its = points + nuclide * per_nuclide;
         size_t low = rows[row * NUCLIDES + nuclide], high;
         double share;

         if (i % CHECKED == 0 && low != last_not_above(energy, its, sizeof *its, per_nuclide))
            fail("the grid leads to a wrong point");
         if (low == per_nuclide - 1)
            low--;
         high = low + 1;
         share = (its[high].energy - energy) / (its[high].energy - its[low].energy);
         for (size_t kind = 0; kind < KINDS; kind++)
            sums[kind] += densities[material][member] *
                          (its[high].sections[kind] - share * (its[high].sections[kind] - its[low].sections[kind]));
      }
      for (size_t kind = 1; kind < KINDS; kind++)
         if (sums[kind] > sums[largest])
            largest = kind;
      checksums[thread] += (largest + 1) * (i % 1009 + 1);
   }
   return NULL;
}

int main(int argc, char **argv)
{
   uint64_t checksum = 0;

   read_arguments(argc, argv, arguments, 3);
   threads = arguments[0].value;
   per_nuclide = arguments[1].value;
   count = NUCLIDES * per_nuclide;
   points = allocate(count * sizeof *points);
   energies = allocate(count * sizeof *energies);
   rows = allocate(count * NUCLIDES * sizeof *rows);
   make_grid();
   make_materials();
   in_parallel(threads, look_up);
   for (size_t thread = 0; thread < threads; thread++)
      checksum += checksums[thread];
   printf("lookups: %llu lookups in %zu energies, checksum %llu\n", (unsigned long long)arguments[2].value, count,
          (unsigned long long)checksum);
   return 0;
}
