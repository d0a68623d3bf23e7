/* The functions of shadowgraph._core share this: they turn a status into a result, and set how many
 * threads compute. */
#ifndef SHADOWGRAPH_PYTHON_CORE_H_
#define SHADOWGRAPH_PYTHON_CORE_H_

#include "arguments.h"
#include "shadowgraph.h"

extern const char report_name[]; /* of the capsules that hold an sg_report */
extern const char batch_name[];
/* A handle's pointer; NULL: an exception is set. */
void* handle_of(PyObject* object, const char* name);
/* False: an exception is set. None is the report NULL. */
bool report_of(PyObject* handle, sg_report** report);
/* None for NULL. The report is the handle's, or gone. */
PyObject* report_handle(sg_report* report);
/* True of SG_OK. Else an exception is set. The report is gone. */
bool succeeded(const char* function, sg_status status, sg_report* report);
/* A judge's result: its findings. */
PyObject* verdict(const char* function, sg_status status, sg_report* report);
/* None of SG_OK. */
PyObject* done(const char* function, sg_status status);

/* Before each call that computes. False: an exception is set. num_threads: the call's own, or NULL.
 */
bool settle_threads(int32_t* num_threads);

#define FUNCTION(name, table, positional)                                                      \
  _Static_assert(sizeof(table) / sizeof(table)[0] <= MAX_ARGUMENTS, "more than a call holds"); \
  static Function name = {#name, table, sizeof(table) / sizeof(table)[0], positional, NULL}
/* The tensors of a call lie on the stack of its function. */
#define CALL(views) \
  { .views = (views), .max_views = (int)(sizeof(views) / sizeof(views)[0]) }
#define FAST(name) \
  { #name, (PyCFunction)(void (*)(void))call_##name, METH_FASTCALL | METH_KEYWORDS, NULL }

extern PyMethodDef attention_functions[], batch_functions[], judge_functions[];

#endif /* SHADOWGRAPH_PYTHON_CORE_H_ */
