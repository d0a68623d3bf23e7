/* Prints the size of every struct and the place of every member, as abi.txt has them. */
#include <stdio.h>

#include "shadowgraph.h"

#define STRUCT(type) printf("%s %d\n", #type, (int)sizeof(type))
#define MEMBER(type, member) printf("%s.%s %d\n", #type, #member, (int)offsetof(type, member))

int main(void) {
#include "layout.inc"
  return 0;
}
