// Results as lines that the tests read: "ok NAME" or "fail NAME: what was seen".
#pragma once
#include <stdio.h>
#include <string.h>

static inline void check_that(const char *name, int holds, const char *seen) {
  if (holds)
    printf("ok %s\n", name);
  else
    printf("fail %s: %s\n", name, seen == NULL ? "(null)" : seen);
  fflush(stdout);
}

static inline int starts(const char *text, const char *beginning) {
  return text != NULL && strncmp(text, beginning, strlen(beginning)) == 0;
}
