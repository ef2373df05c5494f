/* One question to the analyzer that started this program, one answer: a line of JSON each way over a Unix socket. */
#ifndef ANALYZER_QUESTION_H
#define ANALYZER_QUESTION_H

#include <stdint.h>

/* A line that is written piece by piece. */
struct line {
  char *text;
  int64_t length, room;
};

__attribute__((format(printf, 2, 3))) void line_add(struct line *line, const char *format, ...);

/* Writes `name: [n, n, ...]` after a comma. */
void line_add_numbers(struct line *line, const char *name, int64_t count, const int64_t *numbers);

/* Asks, and frees the line. Returns how many whole numbers the answer holds and sets *numbers (the caller frees them), or -1 where
   there is none: nobody listens, or the analyzer does not know. The reason then stands on the standard error, once for each. */
int64_t question_ask(struct line *line, int64_t **numbers);

/* The same, over a connection of its own: an answer that waits for other processes keeps no other question waiting. */
int64_t question_wait(struct line *line, int64_t **numbers);

#endif
