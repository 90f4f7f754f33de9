// Results of a service's operations as exceptions of holdfast.errors.
#include <cstdio>

#include "bindings/service/objects.hpp"

namespace holdfast::bindings {

namespace {

std::string role_words(const ServiceObject* self) {
    const bool tracer = self->proxy != nullptr && self->proxy->tracer();
    return std::string("the ") +
           (self->provider != nullptr ? "provider"
            : tracer                  ? "tracer"
                                      : "proxy") +
           " of service " + self->hold->name();
}

// "pid 12 has 3, pid 13 has 1"
std::string subscribers(ProxyHold& hold, u32 element) {
    std::string out;
    for (u32 slot = 0; slot <= hold.plan().slots().tracer(); ++slot) {
        const u32 word = hold.elements()[element].logs.word(slot);
        if (word == 0) continue;
        out += (out.empty() ? "pid " : ", pid ") + std::to_string(hold.info_of(slot).pid) +
               " has " + std::to_string(log_samples(word));
    }
    return out.empty() ? "no process has one now" : out;
}

}  // namespace

std::string words_of(const ServiceHold& hold, u32 element) {
    return std::string(hold.plan().element(element).name_text()) + " of service " + hold.name();
}

void raise_unusable(const ServiceObject* self) {
    if (self->hold == nullptr)
        return raise("Misuse", "this object was not initialised; call __init__ of its class");
    const std::string role = role_words(self);
    const std::string again = self->provider != nullptr ? "offer the service" : "connect";
    if (self->hold->forked())
        raise("Misuse", role + " was opened before fork(), and a child has no slot of its own; " +
                            again + " again in the child");
    else if (self->hold->lost())
        raise("Misuse", role +
                            ": other code in this process closed the descriptor that holds its "
                            "lock (a daemoniser, os.closerange?). Other processes take this one "
                            "for dead; " +
                            again + " again");
    else
        raise("Closed", role + " was closed; " + again + " again for a new one");
}

void raise_nothing(const ServiceObject* self, const std::string& what, double waited_s,
                   bool nowait) {
    char waited[48] = "";
    if (!nowait) std::snprintf(waited, sizeof waited, " after %.3f s", waited_s);
    const bool absent = self->proxy != nullptr && !self->hold->offered();
    raise(nowait ? "Empty" : "Timeout",
          what + waited + (absent ? ": no process offers the service" : ""));
}

void raise_subscribing(ProxyHold& hold, u32 element, u32 samples, Subscribing result) {
    const ElementSpec& spec = hold.plan().element(element);
    const std::string where = words_of(hold, element);
    const u32 mine = hold.elements()[element].logs.word(hold.slot());
    if (result == Subscribing::busy && mine != 0)
        return raise("Corrupt", "service " + hold.name() + " is damaged: the log of slot " +
                                    std::to_string(hold.slot()) + " for " + where + " holds " +
                                    std::to_string(mine) +
                                    ", although this proxy has not subscribed. Run `holdfast "
                                    "service doctor " +
                                    hold.name() + "`");
    if (result == Subscribing::busy)
        return raise("Full", where +
                                 ": other proxies subscribe at the same moment, again and again; "
                                 "subscribe again");
    if (result == Subscribing::crowded)
        return raise("Full", where + " has " + std::to_string(spec.max_subscribers) +
                                 " subscribers, as many as its max_subscribers: " +
                                 subscribers(hold, element) +
                                 ". End one of them, or declare it with more max_subscribers");
    raise("Full", where + " cannot lend " +
                      (samples == 0 ? "a sample to this read"
                                    : std::to_string(samples) + " samples to this proxy") +
                      ". It has " + std::to_string(spec.samples) + ": the provider needs " +
                      std::to_string(spec.loans + 1) +
                      " and each subscriber one more than it holds (" + subscribers(hold, element) +
                      "). Subscribe with fewer samples, or declare the element with more");
}

void raise_loan_limit(ProviderHold& hold, u32 element) {
    raise("Misuse", words_of(hold, element) + " lends its provider at most " +
                        std::to_string(hold.plan().element(element).loans) +
                        " samples at once, and all of them are lent. Publish or release a loan "
                        "(delete its views), or declare the element with more `loans`");
}

void raise_no_sample(ProviderHold& hold, u32 element) {
    raise("Full", words_of(hold, element) + " has no free sample: all " +
                      std::to_string(hold.plan().element(element).samples) +
                      " are held. Look at it with `holdfast service doctor " + hold.name() + "`");
}

void raise_too_large(const ServiceHold& hold, u32 element, const char* what, u64 size, u64 limit) {
    raise("Misuse", std::string(what) + " of " + std::to_string(size) + " bytes is too large for " +
                        words_of(hold, element) + ": it may have at most " + std::to_string(limit) +
                        ". Declare the element with a larger size");
}

}  // namespace holdfast::bindings
