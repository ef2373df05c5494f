/* Questions to the analyzer: the socket whose path ANALYZER_EMULATED_QUESTIONS holds.

   A question is one line of JSON, {"about": ..., ...}; the answer is one line, a list of whole numbers, or a string that says
   why there is none. Threads take turns. A process that was forked opens a connection of its own.
   A question whose answer waits for other processes has one, too.
   The other side: extensions/analyzer_emulation/questions.py. */
#define _GNU_SOURCE
#include "question.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PATH_VARIABLE "ANALYZER_EMULATED_QUESTIONS"

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int connection = -1;
static pid_t connected_by;

static void make_room(struct line *line, int64_t more) {
  if (line->length + more + 1 <= line->room) return;
  line->room = 2 * line->room + more + 256;
  line->text = realloc(line->text, line->room);
  if (line->text == NULL) abort();
}

void line_add(struct line *line, const char *format, ...) {
  va_list values, again;
  va_start(values, format);
  va_copy(again, values);
  int length = vsnprintf(NULL, 0, format, values);
  make_room(line, length);
  vsnprintf(line->text + line->length, length + 1, format, again);
  line->length += length;
  va_end(again);
  va_end(values);
}

void line_add_numbers(struct line *line, const char *name, int64_t count, const int64_t *numbers) {
  line_add(line, ",\"%s\":[", name);
  for (int64_t i = 0; i < count; i++) line_add(line, i ? ",%lld" : "%lld", (long long)numbers[i]);
  line_add(line, "]");
}

/* Says it once: a loop that asks a thousand times should not fill the terminal. */
static void complain(const char *sentence) {
  static char *said[64];
  for (int i = 0; i < 64; i++) {
    if (said[i] == NULL) {
      said[i] = strdup(sentence);
      break;
    }
    if (strcmp(said[i], sentence) == 0) return;
  }
  fprintf(stderr, "analyze emulate: %s\n", sentence);
}

static int connect_to(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) return -1;
  strcpy(address.sun_path, path);
  int found = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (found >= 0 && connect(found, (struct sockaddr *)&address, sizeof address) != 0) {
    close(found);
    found = -1;
  }
  return found;
}

static int send_all(int to, const char *text, int64_t length) {
  while (length > 0) {
    ssize_t sent = send(to, text, length, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return -1;
    text += sent;
    length -= sent;
  }
  return 0;
}

static int receive_line(int from, struct line *line) {
  for (;;) {
    make_room(line, 4096);
    ssize_t got = recv(from, line->text + line->length, line->room - line->length - 1, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return -1;
    line->length += got;
    line->text[line->length] = 0;
    if (line->text[line->length - 1] == '\n') return 0;
  }
}

/* The answer's numbers; of a string the sentence. */
static int64_t read_answer(char *text, int64_t **numbers) {
  if (text[0] != '[') {
    char *end = strrchr(text, '"');
    if (end != NULL && end > text) *end = 0;
    complain(text[0] == '"' ? text + 1 : text);
    return -1;
  }
  int64_t count = 0, room = 16;
  *numbers = malloc(room * sizeof **numbers);
  for (char *at = text + 1, *end; *at && *at != ']'; at = end) {
    while (*at == ',' || *at == ' ') at++;
    long long number = strtoll(at, &end, 10);
    if (end == at) break;
    if (count == room) *numbers = realloc(*numbers, (room *= 2) * sizeof **numbers);
    if (*numbers == NULL) abort();
    (*numbers)[count++] = number;
  }
  return count;
}

/* Over a connection that is there, or is not (-1). Returns the count of numbers; -2 where the connection is of no more use. */
static int64_t ask(int over, struct line *line, int64_t **numbers) {
  struct line answer = {0};
  int64_t count = -2;
  *numbers = NULL;
  line_add(line, "\n");
  if (over < 0) {
    complain("a question was asked and the analyzer does not answer; start the program with `analyze emulate`");
  } else if (send_all(over, line->text, line->length) != 0 || receive_line(over, &answer) != 0) {
    complain("the analyzer went away while the program was running");
  } else {
    count = read_answer(answer.text, numbers);
  }
  free(answer.text);
  free(line->text);
  *line = (struct line){0};
  return count;
}

int64_t question_ask(struct line *line, int64_t **numbers) {
  const char *path = getenv(PATH_VARIABLE);
  pthread_mutex_lock(&turn);
  if (connection >= 0 && connected_by != getpid()) {
    close(connection);
    connection = -1;
  }
  if (connection < 0 && path != NULL) {
    connection = connect_to(path);
    connected_by = getpid();
  }
  int64_t count = ask(connection, line, numbers);
  if (count == -2 && connection >= 0) {
    close(connection);
    connection = -1;
  }
  pthread_mutex_unlock(&turn);
  return count < 0 ? -1 : count;
}

int64_t question_wait(struct line *line, int64_t **numbers) {
  const char *path = getenv(PATH_VARIABLE);
  int over = path == NULL ? -1 : connect_to(path);
  int64_t count = ask(over, line, numbers);
  if (over >= 0) close(over);
  return count < 0 ? -1 : count;
}
