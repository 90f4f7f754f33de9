// Results of a channel's operations as exceptions of holdfast.errors.
#include <cstdio>

#include "bindings/channel/objects.hpp"

namespace holdfast::bindings {

namespace {

std::string after(double waited_s, bool nowait) {
    char waited[48] = "";
    if (!nowait) std::snprintf(waited, sizeof waited, " after %.3f s", waited_s);
    return waited;
}

// The exception carries the pid of the process that has the other role, so that a program can act on it.
void raise_with_pid(u32 pid, const char* class_name, const std::string& words) {
    PyObject* type = error_class(class_name);
    if (type == nullptr) return;
    PyObject* error = PyObject_CallFunction(type, "s", words.c_str());
    if (error == nullptr) return;
    PyObject* number = pid == 0 ? nullptr : PyLong_FromUnsignedLong(pid);
    if (number != nullptr) PyObject_SetAttrString(error, "pid", number);
    Py_XDECREF(number);
    PyErr_SetObject(type, error);
    Py_DECREF(error);
}

}  // namespace

void raise_unusable(const ChannelHold& hold) {
    const std::string role = role_name(hold.role());
    const std::string who = "the " + role + " of channel " + hold.name();
    if (hold.forked())
        raise("Misuse", who +
                            " was made before fork(), and stays with the parent. Close it "
                            "there, then call Channel." +
                            role + "() in the child");
    else if (hold.lost())
        raise("Misuse", who +
                            ": other code in this process closed the descriptor that holds its "
                            "lock (a daemoniser, os.closerange?). Other processes take this one "
                            "for dead, and its role may be another's. Call Channel.open() and " +
                            role + "() again");
    else
        raise("Closed", who + " was closed; call Channel." + role + "() for a new one");
}

void raise_handover(ChannelHold& hold, Handover result, const char* call, double waited_s,
                    bool nowait) {
    const std::string channel = "channel " + hold.name();
    const std::string waited = after(waited_s, nowait);
    const u32 peer = hold.peer_pid();
    const std::string pid = "(pid " + std::to_string(peer) + ")";
    const bool several = hold.plan().producers > 1;  // then `peer` is one of them, not the only one
    switch (result) {
        case Handover::full:
            return raise_with_pid(peer, nowait ? "Full" : "Timeout",
                                  channel + " has no free slot for this " + call + waited +
                                      ": its data wait for " +
                                      (peer == 0 ? "a consumer, and no process has that role"
                                                 : "the consumer " + pid));
        case Handover::empty:
            return raise_with_pid(
                0, nowait ? "Empty" : "Timeout",
                channel + " has no datum for this " + call + waited +
                    (peer == 0 ? ": no process has the producer's role"
                     : several ? ": none of its producers has pushed anything new"
                               : ": the producer " + pid + " has pushed nothing new"));
        case Handover::starved:
            return raise_with_pid(
                several ? 0 : peer, nowait ? "Empty" : "Timeout",
                channel + (several ? ": a producer" : ": the producer " + pid) + " overtook this " +
                    call + " " + std::to_string(hold.params().laps) + " times in a row" + waited +
                    "; nothing was taken. Pop more often, or create the channel with more slots");
        case Handover::exhausted:
            return raise("HoldfastError",
                         channel + " has used up its 62 bits of positions; create a new one");
        case Handover::corrupt:
        case Handover::ok:
            if (!still_usable(hold)) return;  // others have taken from us what was ours
            return raise("Corrupt", hold.fault_words());
    }
}

void raise_loan_limit(ProducerHold& hold, u32 priority, std::size_t wanted) {
    raise("Misuse",
          "channel " + hold.name() + " lends its producer at most " +
              std::to_string(hold.params().loans) + " buffers at once" +
              (hold.plan().priorities > 1 ? " for priority " + std::to_string(priority) : "") +
              ". " + std::to_string(hold.loans(priority)) +
              " are lent (loans, and displaced data that are kept), and this call needs " +
              std::to_string(wanted) + ". Release them, or create the channel with more `loans`");
}

void raise_no_buffer(ProducerHold& hold, const char* call, double waited_s, bool nowait) {
    raise_with_pid(hold.peer_pid(), nowait ? "Full" : "Timeout",
                   "channel " + hold.name() + " has no free buffer for this " + call +
                       after(waited_s, nowait) +
                       ": views of data are kept by roles that were closed. Delete these views, or "
                       "end their processes");
}

}  // namespace holdfast::bindings
