/* Transforms complex numbers by the six-step method, as `fft` of Splash-2x does.
 *
 *    fft [THREADS [LOG2_POINTS]]
 *
 * The points are a square matrix of rows. Memory is first touched in these phases:
 *
 *    1. The points, a second matrix and the twiddle factors are allocated. Nothing is touched.
 *    2. The first thread writes random points, at full speed, and then the factors, at the pace of sines and cosines.
 *    3. All threads read their rows of all three. The second matrix gets the page of zeros there.
 *    4. The first transposition writes to the second matrix. That takes a fault for each page again.
 *    5. The rest, which is rows that are transformed, and two more transpositions, touches nothing new.
 */
#include "program.h"

#include <math.h>

enum { BLOCK = 16, QUARTERS = 4 };

struct complex {
   double re, im;
};

static struct argument arguments[] = {{"THREADS", 2, 1, MOST_THREADS}, {"LOG2_POINTS", 22, 8, 32}};
static struct complex *points, *other, *twiddles, *roots;
static size_t threads, count, side;
static double touched[MOST_THREADS];
static pthread_barrier_t all;

static struct complex product(struct complex a, struct complex b)
{
   return (struct complex){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

static struct complex root_of_one(size_t power, size_t order)
{
   double angle = -2 * acos(-1) * (double)power / (double)order;

   return (struct complex){cos(angle), sin(angle)};
}

/* Transforms one row in place: its numbers by reversed bits, and then butterflies. */
static void transform(struct complex *row, const struct complex *unit)
{
   for (size_t i = 1, reversed = 0; i < side; i++) {
      size_t bit = side >> 1;

      for (; reversed & bit; bit >>= 1)
         reversed ^= bit;
      reversed ^= bit;
      if (i < reversed) {
         struct complex swapped = row[i];

         row[i] = row[reversed];
         row[reversed] = swapped;
      }
   }
   for (size_t half = 1; half < side; half *= 2)
      for (size_t begin = 0; begin < side; begin += 2 * half)
         for (size_t i = 0; i < half; i++) {
            struct complex *low = &row[begin + i], *high = low + half, odd = product(*high, unit[i * (side / half / 2)]);

            *high = (struct complex){low->re - odd.re, low->im - odd.im};
            *low = (struct complex){low->re + odd.re, low->im + odd.im};
         }
}

/* Writes rows of one matrix from columns of the other, in blocks that the caches hold. */
static void transpose(const struct complex *from, struct complex *to, size_t first, size_t end)
{
   for (size_t rows = first; rows < end; rows += BLOCK)
      for (size_t columns = 0; columns < side; columns += BLOCK)
         for (size_t row = rows; row < rows + BLOCK && row < end; row++)
            for (size_t column = columns; column < columns + BLOCK; column++)
               to[row * side + column] = from[column * side + row];
   pthread_barrier_wait(&all);
}

static void *work(void *number)
{
   size_t thread = (size_t)number, first = part(side, thread, threads), end = part(side, thread + 1, threads);
   struct complex *unit = allocate(side * sizeof *unit);

   memcpy(unit, roots, side * sizeof *unit);
   for (size_t i = first * side; i < end * side; i++)
      touched[thread] += points[i].re + other[i].re + twiddles[i].re;
   pthread_barrier_wait(&all);
   transpose(points, other, first, end);
   for (size_t row = first; row < end; row++) {
      transform(other + row * side, unit);
      for (size_t i = row * side; i < (row + 1) * side; i++)
         other[i] = product(other[i], twiddles[i]);
   }
   pthread_barrier_wait(&all);
   transpose(other, points, first, end);
   for (size_t row = first; row < end; row++)
      transform(points + row * side, unit);
   pthread_barrier_wait(&all);
   transpose(points, other, first, end);
   free(unit);
   return NULL;
}

/* Ends the program if the result is not that of the points: four of its numbers, which are plain sums, and the energy. */
static void check(const struct complex *sums, double energy)
{
   double tolerance = 1e-12 * (double)count;

   for (size_t k = 0; k < QUARTERS; k++) {
      struct complex value = {0, 0}, result = other[k * (count / QUARTERS)];

      for (size_t i = 0; i < QUARTERS; i++) {
         struct complex term = product(sums[i], root_of_one(i * k % QUARTERS, QUARTERS));

         value = (struct complex){value.re + term.re, value.im + term.im};
      }
      if (hypot(value.re - result.re, value.im - result.im) > tolerance)
         fail("the transform is wrong");
   }
   for (size_t i = 0; i < count; i++)
      energy -= (other[i].re * other[i].re + other[i].im * other[i].im) / (double)count;
   if (fabs(energy) > tolerance)
      fail("the transform changes the energy");
}

int main(int argc, char **argv)
{
   struct complex sums[QUARTERS] = {{0, 0}};
   double energy = 0, checksum = 0;

   read_arguments(argc, argv, arguments, 2);
   threads = arguments[0].value;
   if (arguments[1].value % 2) {
      fputs("fft: LOG2_POINTS must be even, since the points are a square matrix\n", stderr);
      return 2;
   }
   side = (size_t)1 << arguments[1].value / 2;
   count = side * side;
   points = allocate(count * sizeof *points);
   other = allocate(count * sizeof *other);
   twiddles = allocate(count * sizeof *twiddles);
   roots = allocate(side * sizeof *roots);
   for (size_t i = 0; i < count; i++) {
      points[i] = (struct complex){random_fraction(2 * i) - 0.5, random_fraction(2 * i + 1) - 0.5};
      energy += points[i].re * points[i].re + points[i].im * points[i].im;
      sums[i % QUARTERS].re += points[i].re;
      sums[i % QUARTERS].im += points[i].im;
   }
   for (size_t i = 0; i < side; i++)
      roots[i] = root_of_one(i, side);
   for (size_t i = 0; i < count; i++)
      twiddles[i] = root_of_one(i / side * (i % side), count);
   pthread_barrier_init(&all, NULL, (unsigned)threads);
   in_parallel(threads, work);

   check(sums, energy);
   for (size_t i = 0; i < count; i++)
      checksum += (double)(i % 7) * other[i].re + (double)(i % 11) * other[i].im;
   printf("fft: 2^%llu points, right, checksum %.12e\n", (unsigned long long)arguments[1].value, checksum);
   return 0;
}
