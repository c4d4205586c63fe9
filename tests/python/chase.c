/* A pointer chase: MIBIBYTES of lines in one random cycle, STEPS of it. Prints where it ends. */
#include <stdio.h>
#include <stdlib.h>

struct line {
    size_t next;
    char rest[56];
};

int main(int count, char **words) {
    size_t lines = (size_t)atol(words[1]) << 14, steps = atol(words[2]), at = 0;
    struct line *line = malloc(lines * sizeof *line);
    unsigned long long random = 1;
    if (count > 3) return atoi(words[3]);
    for (size_t i = 0; i < lines; i++) line[i].next = i;
    for (size_t i = lines - 1; i; i--) {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        size_t other = (random >> 33) % i, kept = line[i].next;
        line[i].next = line[other].next;
        line[other].next = kept;
    }
    while (steps--) at = line[at].next;
    printf("%zu\n", at);
    return 0;
}
