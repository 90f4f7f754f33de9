// DirectoryWatch: tells which names of a directory came or went.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "bindings/base/errors.hpp"
#include "holdfast/base/files.hpp"

namespace nb = nanobind;

namespace holdfast::bindings {

namespace {

class DirectoryWatch {
 public:
    explicit DirectoryWatch(const std::string& directory)
        : directory_(directory), pid_(::getpid()) {
        OwnedFd fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
        constexpr u32 kEvents = IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM;
        if (fd.get() < 0 ||
            ::inotify_add_watch(fd.get(), directory.c_str(), kEvents | IN_ONLYDIR) < 0) {
            const int error = errno;
            throw Error(error == ENOENT || error == ENOTDIR ? Code::not_found
                        : error == EACCES                   ? Code::denied
                                                            : Code::io,
                        "the directory " + directory + " cannot be watched: " + errno_text(error) +
                            (error == EMFILE || error == ENOSPC
                                 ? "; raise fs.inotify.max_user_instances or max_user_watches"
                                 : "; create it, or set HOLDFAST_RUNTIME_DIR to another"),
                        error);
        }
        fd_ = std::move(fd);
    }

    int fileno() const {
        require_open();
        return fd_.get();
    }

    nb::list read() {
        require_open();
        nb::list names;
        alignas(struct inotify_event) char room[4096];
        while (true) {
            const ssize_t got = ::read(fd_.get(), room, sizeof room);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) return names;
            for (const char* at = room; at < room + got;) {
                const auto* event = reinterpret_cast<const struct inotify_event*>(at);
                at += sizeof *event + event->len;
                // An overflow of the kernel's queue, or the end of the directory, has no name.
                names.append(
                    nb::steal(PyUnicode_DecodeFSDefault(event->len != 0 ? event->name : "")));
            }
        }
    }

    void close() { fd_ = OwnedFd(); }

 private:
    void require_open() const {
        if (fd_.get() < 0)
            throw Error(Code::closed, "the watch of " + directory_ + " was closed; make another");
        // A child reads the events of its parent, which would miss them.
        if (::getpid() != pid_)
            throw Error(Code::misuse, "the watch of " + directory_ +
                                          " was opened before fork(); make another in the child");
    }

    std::string directory_;
    pid_t pid_;
    OwnedFd fd_;
};

}  // namespace

void bind_watch(nb::module_& module) {
    nb::class_<DirectoryWatch>(module, "DirectoryWatch")
        .def(nb::init<const std::string&>(), nb::arg("directory"))
        .def("fileno", &DirectoryWatch::fileno, "The descriptor; readable when read() has names.")
        .def("read", &DirectoryWatch::read,
             "Return the names that came or went; an empty one: look at all, some were lost.")
        .def("close", &DirectoryWatch::close);
}

}  // namespace holdfast::bindings
