/* The arguments of a call, by tables: an entry says what an argument is called, what it is, and
 * which member of the call's struct it goes to. */
#ifndef SHADOWGRAPH_PYTHON_ARGUMENTS_H_
#define SHADOWGRAPH_PYTHON_ARGUMENTS_H_

#include "tensors.h"

/* The kind of a member. Tensors may be of lists where their kind names a type of numbers. */
typedef enum {
  TENSOR, /* const DLTensor* */
  VALUES, /* the same, of `dtype` where it holds unsigned integers */
  KEYS,   /* the same, of `kv_dtype` */
  INT32S, /* const DLTensor*, or a list */
  INT64S,
  FLOATS,
  CACHE, /* sg_cache: a tuple; keys and values are read */
  WRITTEN_CACHE,
  OBJECT,   /* PyObject*, borrowed */
  INT,      /* int32_t */
  INT64,    /* int64_t */
  TRUTH,    /* int32_t, 0 or 1 */
  FLOAT,    /* float */
  TEXT,     /* const char* */
  DTYPE,    /* no member: what unsigned integers of VALUES hold */
  KV_DTYPE, /* and those of KEYS */
  WORD      /* int32_t, the place of a word in `words` */
} Kind;

typedef struct {
  const char* name;
  Kind kind;
  size_t member; /* offset in the struct; of CACHE an sg_cache */
  bool needed;
  const char* const* words; /* of WORD, ends with NULL */
} Argument;

enum { MAX_VIEWS = 40, MAX_ARGUMENTS = 56 };

/* One call from Python, with the tensors that it was given. */
typedef struct {
  const char* function;
  View* views;
  int num_views, max_views;
  DLDataType held, kv_held;
} Call;

/* A function of Python: its name, and its arguments, of which the first `positional` may come
 * without a name. */
typedef struct {
  const char* name;
  const Argument* arguments;
  int count, positional;
  PyObject** keys; /* interned names, made by functions_init */
} Function;

/* Fills the members that are given. False: an exception is set. call_clear is due in either case.
 */
bool take_arguments(Call* call, Function* function, void* members, PyObject* const* given,
                    Py_ssize_t positional, PyObject* names);
/* Reads one tensor; NULL: an exception is set. It lives until call_clear. */
DLTensor* take_view(Call* call, PyObject* object, const Want* want);
void call_clear(Call* call);

#endif /* SHADOWGRAPH_PYTHON_ARGUMENTS_H_ */
