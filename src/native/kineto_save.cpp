/* kinetoscope._kineto_save: Kineto's own save, without the GIL, so that training goes on meanwhile.
 *
 *     torch's result object ──► the address of what it wraps ──► ProfilerResult::save(path), on the calling thread alone
 *
 * torch's binding of `save` holds the GIL all the while, although what it calls touches no Python object. So this calls
 * the same function of libtorch itself. pybind11's conduit, which is there for extension modules to share C++ objects,
 * gives the address, and only if both sides agree about the ABI and the type. C++ and not C, because the function may
 * throw, and an exception that nobody catches ends the process. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dlfcn.h>

#include <cstring>
#include <exception>
#include <string>
#include <typeinfo>

namespace torch::autograd::profiler {
struct ProfilerResult {}; /* only for its name: pybind11 compares types by it */
} // namespace torch::autograd::profiler

using torch::autograd::profiler::ProfilerResult;
using Save = void (*)(void *result, const std::string &path); /* how the ABI passes a member function's arguments */

static const char INTERNALS[] = "__pybind11_internals_v";
/* ProfilerResult::save(const std::string &), with the std::string of this compiler's ABI. */
static const char SYMBOL[] =
    "_ZN5torch8autograd8profiler14ProfilerResult4saveERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";

/* The text by which pybind11 knows the ABI it was built for: its name of what it shares in the interpreter ends with it,
 * as in __pybind11_internals_v11_system_libstdcpp_gxx_abi_1xxx_use_cxx11_abi_1__. Null with an error set if it is not. */
static PyObject *find_abi()
{
    PyObject *shared = PyInterpreterState_GetDict(PyInterpreterState_Get()), *key, *value; /* borrowed */
    Py_ssize_t position = 0;
    while (shared != nullptr && PyDict_Next(shared, &position, &key, &value)) {
        Py_ssize_t length;
        const char *name = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, &length) : nullptr;
        if (name == nullptr || std::strncmp(name, INTERNALS, sizeof INTERNALS - 1) != 0)
            continue;
        const char *abi = std::strchr(name + sizeof INTERNALS - 1, '_');
        const char *end = name + length - 2;
        if (abi != nullptr && abi + 1 < end)
            return PyBytes_FromStringAndSize(abi + 1, end - abi - 1);
    }
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_LookupError, "There is no pybind11 in this process whose ABI is known.");
    return nullptr;
}

/* The address in a capsule that the conduit of `result` gives; null with an error set if it gives none. */
static void *address_of(PyObject *result)
{
    PyObject *abi = find_abi();
    if (abi == nullptr)
        return nullptr;
    PyObject *type = PyCapsule_New(const_cast<std::type_info *>(&typeid(ProfilerResult)), typeid(std::type_info).name(),
                                   nullptr);
    PyObject *found = nullptr;
    if (type != nullptr)
        found = PyObject_CallMethod(result, "_pybind11_conduit_v1_", "OOy", abi, type, "raw_pointer_ephemeral");
    Py_DECREF(abi);
    Py_XDECREF(type);
    if (found == nullptr)
        return nullptr;
    void *address = nullptr;
    if (PyCapsule_CheckExact(found))
        address = PyCapsule_GetPointer(found, typeid(ProfilerResult).name());
    else
        PyErr_SetString(PyExc_TypeError, "This is no result of torch's profiler that this module can use.");
    Py_DECREF(found);
    return address;
}

/* torch's function in a library that is loaded already; null, with an error set, if it is not there. */
static Save find_function(const char *library)
{
    void *loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD), *found = nullptr;
    if (loaded != nullptr) {
        found = dlsym(loaded, SYMBOL);
        dlclose(loaded); /* which only takes back the dlopen: torch itself keeps it loaded */
    }
    if (found == nullptr)
        PyErr_Format(PyExc_LookupError, "%s has no function to save what Kineto recorded.", library);
    return reinterpret_cast<Save>(found);
}

/* What went wrong, in words; empty if nothing did. */
static std::string call(Save save, void *result, const std::string &path)
{
    try {
        save(result, path);
        return "";
    } catch (const std::exception &error) {
        return *error.what() ? error.what() : "an exception without a message";
    } catch (...) {
        return "an unknown exception";
    }
}

static PyObject *can_save(PyObject *, PyObject *arguments)
{
    PyObject *result;
    const char *library;
    if (!PyArg_ParseTuple(arguments, "Os", &result, &library))
        return nullptr;
    bool can = find_function(library) != nullptr && address_of(result) != nullptr;
    PyErr_Clear();
    return PyBool_FromLong(can);
}

static PyObject *save(PyObject *, PyObject *arguments)
{
    PyObject *result;
    const char *library, *path;
    if (!PyArg_ParseTuple(arguments, "Oss", &result, &library, &path))
        return nullptr;
    Save function = find_function(library);
    void *address = function == nullptr ? nullptr : address_of(result);
    if (address == nullptr)
        return nullptr;
    std::string target(path), failure;
    Py_BEGIN_ALLOW_THREADS
    failure = call(function, address, target);
    Py_END_ALLOW_THREADS
    if (!failure.empty())
        return PyErr_Format(PyExc_RuntimeError, "%s", failure.c_str());
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"can_save", can_save, METH_VARARGS, "(result, library): whether `save` knows how to save this."},
    {"save", save, METH_VARARGS, "(result, library, path): saves a result of torch's, whose libtorch is that library."},
    {nullptr, nullptr, 0, nullptr},
};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "kinetoscope._kineto_save", "Kineto's save, without the GIL.",
                                 -1, functions, nullptr, nullptr, nullptr, nullptr};

PyMODINIT_FUNC PyInit__kineto_save() { return PyModule_Create(&definition); }
