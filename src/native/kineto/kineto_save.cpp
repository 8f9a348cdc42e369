/* kinetoscope._kineto_save: calls Kineto's own save without the GIL, so that training continues
 * meanwhile.
 *
 *     torch's result object ──► the address of what it wraps ──► ProfilerResult::save(path)
 *
 * torch's binding of `save` holds the GIL all the time, although the function it calls touches no
 * Python object. So we call that function of libtorch ourselves. The address of the C++ object
 * comes from pybind11's conduit, which is made for extension modules that share C++ objects. Both
 * sides must have the same std::string, or the call would crash. Two checks ensure that: the
 * conduit compares this compiler's ABI with torch's, and we look the function up by the name that
 * this compiler gives it. This is C++ because the function may throw, and an exception that is not
 * caught ends the process. */

#include <Python.h>

#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <typeinfo>

namespace torch::autograd::profiler
{
struct ProfilerResult {}; /* only its name matters: pybind11 compares types by name */
} // namespace torch::autograd::profiler

using torch::autograd::profiler::ProfilerResult;
/* A member function, as the ABI calls it: the object is the first argument. */
using Save = void (*)(void *result, const std::string &path);

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
/* pybind11's name for the ABI that this file is compiled for; empty if it is unknown. */
#if defined(_LIBCPP_ABI_VERSION)
static const char ABI[] = "system_libcpp_abi" TEXT(_LIBCPP_ABI_VERSION);
#elif defined(_GLIBCXX_USE_CXX11_ABI)
static const char ABI[] =
    "system_libstdcpp_gxx_abi_1xxx_use_cxx11_abi_" TEXT(_GLIBCXX_USE_CXX11_ABI);
#else
static const char ABI[] = "";
#endif

/* The symbol of ProfilerResult::save(const std::string &), for this compiler's std::string. */
static std::string symbol_of_save()
{
    return std::string("_ZN5torch8autograd8profiler14ProfilerResult4saveERK") +
           typeid(std::string).name();
}

/* The C++ object's address, from the capsule that the conduit of `result` returns; null with an
 * error set. */
static void *address_of(PyObject *result)
{
    PyObject *type = PyCapsule_New(const_cast<std::type_info *>(&typeid(ProfilerResult)),
                                   typeid(std::type_info).name(), nullptr);
    PyObject *found = nullptr;
    if (type != nullptr)
        found = PyObject_CallMethod(result, "_pybind11_conduit_v1_", "yOy", ABI, type,
                                    "raw_pointer_ephemeral");
    Py_XDECREF(type);
    if (found == nullptr) return nullptr;
    void *address = nullptr;
    if (PyCapsule_CheckExact(found))
        address = PyCapsule_GetPointer(found, typeid(ProfilerResult).name());
    else
        PyErr_SetString(PyExc_TypeError,
                        "This is no result of torch's profiler that this module can use.");
    Py_DECREF(found);
    return address;
}

/* Finds the function in a library that is already loaded; null with an error set if it is not
 * there. */
static Save find_save(const char *library)
{
    void *loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD), *found = nullptr;
    if (loaded != nullptr) {
        found = dlsym(loaded, symbol_of_save().c_str());
        dlclose(loaded); /* only undoes the dlopen above: torch keeps the library loaded */
    }
    if (found == nullptr)
        PyErr_Format(PyExc_LookupError, "%s has no function %s.", library,
                     symbol_of_save().c_str());
    return reinterpret_cast<Save>(found);
}

/* Calls the function. Returns the error as text; empty if there was none. */
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
    if (!PyArg_ParseTuple(arguments, "Os", &result, &library)) return nullptr;
    bool can = find_save(library) != nullptr && address_of(result) != nullptr;
    PyErr_Clear();
    return PyBool_FromLong(can);
}

/* -- a save on a thread of its own -- */

static const char SAVING[] = "kinetoscope._kineto_save.Saving"; /* the name of its capsule */

struct Saving {
    std::thread thread;
    std::mutex joining; /* a thread can be joined once */
    std::string failure;
    PyObject *result;
    Py_buffer is_written;
    int end_to_write;
};

static void lower_thread_priority(int by)
{
    errno = 0;
    int niceness = getpriority(PRIO_PROCESS, 0); /* on Linux, the niceness of this thread only */
    if (by > 0 && errno == 0) setpriority(PRIO_PROCESS, 0, std::min(niceness + by, 19));
}

/* Never takes the GIL: it might hold it while it waits for a CPU. */
static void run(Saving *saving, Save function, void *address, std::string path, int gives_way)
{
    lower_thread_priority(gives_way);
    saving->failure = call(function, address, path);
    /* kineto_lines.c waits for this */
    __atomic_store_n(static_cast<char *>(saving->is_written.buf), 1, __ATOMIC_RELEASE);
    close(saving->end_to_write);
}

static void join(Saving *saving)
{
    Py_BEGIN_ALLOW_THREADS
    {
        std::lock_guard<std::mutex> alone(saving->joining);
        if (saving->thread.joinable()) saving->thread.join();
    }
    Py_END_ALLOW_THREADS
}

static void forget(PyObject *capsule)
{
    Saving *saving = static_cast<Saving *>(PyCapsule_GetPointer(capsule, SAVING));
    join(saving);
    PyBuffer_Release(&saving->is_written);
    Py_DECREF(saving->result);
    delete saving;
}

static bool start_thread(Saving *saving, Save function, void *address, const char *path,
                         int gives_way)
{
    try {
        saving->thread = std::thread(run, saving, function, address, std::string(path), gives_way);
        return true;
    } catch (const std::exception &error) {
        PyErr_Format(PyExc_RuntimeError, "There is no thread to save on: %s", error.what());
        return false;
    }
}

static PyObject *start(PyObject *, PyObject *arguments)
{
    PyObject *result;
    const char *library, *path;
    Py_buffer is_written;
    int end_to_write, gives_way;
    if (!PyArg_ParseTuple(arguments, "Ossw*ii", &result, &library, &path, &is_written,
                          &end_to_write, &gives_way))
        return nullptr;
    Save function = find_save(library);
    void *address = function == nullptr || is_written.len != 1 ? nullptr : address_of(result);
    if (address == nullptr) {
        PyBuffer_Release(&is_written);
        return PyErr_Occurred()
                   ? nullptr
                   : PyErr_Format(PyExc_ValueError, "The end of the text is marked by one byte.");
    }
    Saving *saving = new Saving{{}, {}, {}, Py_NewRef(result), is_written, end_to_write};
    PyObject *capsule = PyCapsule_New(saving, SAVING, forget);
    if (capsule != nullptr && !start_thread(saving, function, address, path, gives_way))
        Py_CLEAR(capsule);
    return capsule;
}

static PyObject *finish(PyObject *, PyObject *capsule)
{
    Saving *saving = static_cast<Saving *>(PyCapsule_GetPointer(capsule, SAVING));
    if (saving == nullptr) return nullptr;
    join(saving);
    if (!saving->failure.empty())
        return PyErr_Format(PyExc_RuntimeError, "%s", saving->failure.c_str());
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"can_save", can_save, METH_VARARGS,
     "(result, library): returns whether `save` can save this."},
    {"start", start, METH_VARARGS,
     "(result, library, path, is_written, fd, gives_way): begins to save a result of torch's, "
     "whose libtorch is that library,\n"
     "on a thread of its own, nicer by gives_way. When it is done, it sets the one byte of "
     "is_written, and closes fd."},
    {"finish", finish, METH_O,
     "(what start returned): waits until it is saved; raises RuntimeError if it was not."},
    {nullptr, nullptr, 0, nullptr},
};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                 "kinetoscope._kineto_save",
                                 "Kineto's save, without the GIL.",
                                 -1,
                                 functions,
                                 nullptr,
                                 nullptr,
                                 nullptr,
                                 nullptr};

PyMODINIT_FUNC PyInit__kineto_save()
{
    return PyModule_Create(&definition);
}
