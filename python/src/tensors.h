/* Python's tensors as DLPack's, without a copy: torch by its attributes, NumPy by __array_struct__,
 * all others by
 * __dlpack__; lists of numbers become small arrays. */
#ifndef SHADOWGRAPH_PYTHON_TENSORS_H_
#define SHADOWGRAPH_PYTHON_TENSORS_H_

#define Py_LIMITED_API 0x030a0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlpack/dlpack.h>
#include <stdbool.h>

enum { MAX_AXES = 8 };

/* Which library a tensor is of. */
typedef enum { FROM_LIST, FROM_TORCH, FROM_NUMPY, FROM_DLPACK } Library;

/* A tensor of a call. Its memory is the argument's, or what `owner` and `numbers` keep until
 * view_clear. */
typedef struct {
  DLTensor tensor;
  int64_t shape[MAX_AXES], strides[MAX_AXES];
  PyObject *object, *owner; /* object: the argument, borrowed */
  void* numbers;
  Library library;
} View;

/* The demands of an argument on a tensor. */
typedef struct {
  const char *function, *name; /* for errors */
  char list; /* numbers of a list become: 'i' int32, 'l' int64, 'f' float; 0: no list is taken */
  bool written;
  DLDataType held; /* what unsigned integers of as many bits hold; bits 0: integers */
} Want;

/* False: an exception is set. view_clear is due in either case, once the view was zeroed. */
bool view_read(View* view, PyObject* object, const Want* want);
void view_clear(View* view);

/* A new tensor, uninitialised, of torch if `like` is torch's, else of NumPy; f32, or the type of
 * `like`. NULL: an exception is set. */
PyObject* tensor_empty(const View* like, const int64_t* shape, int axes, bool f32);

/* torch.get_num_threads(), where torch is loaded; else 0. -1: an exception is set. */
long torch_num_threads(void);

bool tensors_init(void);

#endif /* SHADOWGRAPH_PYTHON_TENSORS_H_ */
