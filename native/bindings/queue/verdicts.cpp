// Verdicts of a queue's operations as exceptions of holdfast.errors.
#include <cstdio>

#include "bindings/queue/objects.hpp"

namespace holdfast::bindings {

void raise_unusable(const QueueAttachment& attachment) {
    if (attachment.forked())
        raise("Misuse", "queue " + attachment.name() +
                            " was opened before fork(), and a child has no slot of its own; call "
                            "Queue.open() in the child");
    else if (attachment.lost())
        raise("Misuse", "queue " + attachment.name() +
                            ": other code in this process closed the descriptor that holds its "
                            "lock (a daemoniser, os.closerange?). Other processes take this one "
                            "for dead and recover what it held. Call Queue.open() again");
    else
        raise("Misuse",
              "queue " + attachment.name() + " was detached; call Queue.open() to use it again");
}

// The exception carries the pid that is in the way, if there is one, so that a program can act on it.
static void raise_blocked(QueueAttachment& attachment, const char* class_name,
                          const std::string& words) {
    PyObject* type = error_class(class_name);
    if (type == nullptr) return;
    PyObject* error = PyObject_CallFunction(type, "s", words.c_str());
    if (error == nullptr) return;
    if (attachment.blocked_by_somebody()) {
        PyObject* pid = PyLong_FromUnsignedLong(attachment.blocker_pid());
        if (pid != nullptr) PyObject_SetAttrString(error, "pid", pid);
        Py_XDECREF(pid);
    }
    PyErr_SetObject(type, error);
    Py_DECREF(error);
}

void raise_verdict(QueueAttachment& attachment, Verdict verdict, const char* call, double waited_s,
                   bool nowait) {
    const std::string queue = "queue " + attachment.name();
    std::string who = attachment.blocker_words();
    if (!who.empty()) who = ": " + who;
    char waited[48] = "";
    if (!nowait) std::snprintf(waited, sizeof waited, " after %.3f s", waited_s);
    switch (verdict) {
        case Verdict::full:
            if (who.empty()) who = ": its messages wait for a consumer";
            return raise_blocked(attachment, nowait ? "Full" : "Timeout",
                                 queue + " has no room for this " + call + waited + who);
        case Verdict::empty:
            return raise_blocked(attachment, nowait ? "Empty" : "Timeout",
                                 queue + " has no message for this " + call + waited + who);
        case Verdict::fenced:
            return raise_blocked(attachment, "Timeout",
                                 queue + ": this " + call + " exceeded the stall limit each time" +
                                     waited + "; nothing was put");
        case Verdict::contended:
            return raise_blocked(attachment,
                                 !nowait          ? "Timeout"
                                 : call[0] == 'g' ? "Empty"
                                                  : "Full",
                                 queue + ": other processes were quicker each time that this " +
                                     call + " tried" + waited + "; nothing was changed, try again");
        case Verdict::closed:
            return raise("Closed", queue + " is closed: " +
                                       (call[0] == 'p' ? "nothing more can be put"
                                                       : "everything was delivered"));
        case Verdict::exhausted:
            return raise("HoldfastError",
                         queue + " has used up its 52 bits of positions; create a new one");
        case Verdict::corrupt:
        case Verdict::ok:
            if (!still_usable(attachment)) return;  // others have taken from us what was ours
            return raise("Corrupt", attachment.fault_words());
    }
}

}  // namespace holdfast::bindings
