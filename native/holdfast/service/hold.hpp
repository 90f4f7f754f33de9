// One process's hold on a service instance: the provider's, a proxy's, the tracer's.
//
// Each hold has a mapping and a slot of its own; in that of a proxy the data are read-only. All logs of a proxy are held by
// the one description of its slot.
//
// Threads: one thread at a time calls anything here but `looks_*` and `listen` (in Python, the one with the GIL).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/service/elements.hpp"
#include "holdfast/service/markers.hpp"
#include "holdfast/service/notices.hpp"
#include "holdfast/service/params.hpp"
#include "holdfast/shm/attachment.hpp"
#include "holdfast/shm/memory.hpp"

namespace holdfast {

HOLDFAST_POINTS(OfferPoint, offer_unused, offer_created, offer_cleaned, offer_counted, offer_open,
                stop_left, stop_removed, proxy_attached, proxy_reaped);

// Per-slot counters; sums over all slots are the instance's.
enum class ServiceCount : std::size_t {
    sent,
    sent_bytes,
    taken,
    missed,
    called,
    answered,
    recovered,
    corrupt,
    unheard,  // deaths without room for a notice: no provider hears of them
};
inline constexpr const char* kServiceCountNames[] = {"sent",      "sent_bytes", "taken",
                                                     "missed",    "called",     "answered",
                                                     "recovered", "corrupt",    "unheard"};

class ServiceHold {
 public:
    // See Attachment.
    bool usable() const { return attachment_.usable(); }
    bool still_usable() { return attachment_.still_usable(); }
    bool lost() const { return attachment_.lost(); }
    bool forked() const { return attachment_.forked(); }

    const std::string& name() const { return name_; }
    const ServicePlan& plan() const { return plan_; }
    const std::shared_ptr<Segment>& segment() const { return attachment_.segment(); }
    u32 slot() const { return me_; }
    Elements<NativeMemory>& elements() { return elements_; }
    // Does the instance's name still lead to this segment?
    bool has_name() const { return segment()->has_name(); }
    u64 epoch() const {
        // pairs with: clean (of the provider)
        return memory_.load(epoch_word(), std::memory_order_acquire);
    }

    u32* bell(u32 element) const { return plan_.words(segment()->base(), element).bell(); }
    u32* provider_bell() const { return at<u32>(plan_.provider_bell_offset()); }
    u32 listen(u32* bell) { return listen_to(memory_, bell); }

    // Bytes of a sample, at most the element's size.
    u32 length(u32 element, u32 sample) const {
        const u32 found = memory_.load(elements_[element].samples.words().length(sample),
                                       std::memory_order_relaxed);
        return static_cast<u32>(std::min<u64>(found, plan_.element(element).size));
    }

    // A living provider offers the instance. It asks the kernel.
    bool offered() const {
        const ParticipantInfo info = info_of(plan_.slots().provider());
        return info.active && info.locked;
    }
    // A provider has begun and not said that it ends. It asks no kernel, so that provider may be dead.
    bool provided() const {
        return const_cast<Attachment&>(attachment_)
            .participant()
            .marked_active(plan_.slots().provider());
    }
    u32 provider_pid() const { return info_of(plan_.slots().provider()).pid; }
    ParticipantInfo info_of(u32 slot) const {
        return const_cast<Attachment&>(attachment_).participant().describe(slot);
    }
    std::string application_of(u32 slot) const {
        const char* text = at<IdentityEntry>(plan_.identities_offset())[slot].application;
        return std::string(text, ::strnlen(text, sizeof(IdentityEntry)));
    }

    // Wakes all that wait for this instance, also threads of this process, so that they look again.
    void wake_all() {
        for (u32 element = 0; element < plan_.count(); ++element) wake(bell(element));
        wake(provider_bell());
    }

    std::string fault_words() const { return holdfast::fault_words("service", name_, fault_); }

    // Clears every dead proxy and tracer. Returns how many there were.
    u32 reap_all() {
        u32 dead = 0;
        for (u32 slot = 0; slot <= plan_.slots().tracer(); ++slot) {
            if (slot != me_ && attachment_.participant().marked_active(slot))
                dead += clear_if_dead(slot);
        }
        return dead;
    }

    void leave() {
        if (attachment_.still_usable()) attachment_.leave();
    }

 protected:
    ServiceHold(std::shared_ptr<Segment> segment, const std::string& name)
        : name_(name),
          plan_(service_plan(*segment)),
          attachment_(std::move(segment), plan_.participants_offset(), plan_.slots().count()),
          memory_(&attachment_.participant()),
          elements_(memory_, plan_, attachment_.segment()->base()),
          notices_(memory_, at<NoticeEntry>(plan_.notices_offset())) {}

    // Takes a slot of [first, end) and repairs what its last holder left. `clean()` returns false for damage.
    template <class Clean>
    void attach(u32 first, u32 end, const std::string& application, Clean&& clean) {
        bool sound = true;
        attachment_.attach(
            [&](unsigned slot) {
                // A notice is written in the name of a slot, so all this waits until we have one.
                if (!attachment_.participant().joined()) return false;
                me_ = slot;
                if (slot !=
                    plan_.slots().provider()) {  // a provider's death is its successor's matter
                    if (attachment_.participant().marked_active(slot)) died(slot);
                    elements_.clear(slot);
                }
                notices_.clear(slot);
                sound = clean();
                // Its last holder is told and cleared. A death from here on must not be told as that one's, under our name.
                attachment_.participant().mark_inactive(slot);
                write_application(application);
                return true;
            },
            first, end);
        if (sound) return;
        count(ServiceCount::corrupt);
        attachment_.leave();
        throw Error(Code::corrupt, fault_words());
    }

    template <class T>
    T* at(u64 offset) const {
        return reinterpret_cast<T*>(attachment_.segment()->base() + offset);
    }
    u64* epoch_word() const { return at<u64>(plan_.epoch_offset()); }

    void count(ServiceCount which, u64 by = 1) {
        if (by != 0) attachment_.participant().count(static_cast<std::size_t>(which), by);
    }
    bool clear_if_dead(u32 slot) {
        bool dead = false;
        elements_.clear_if_dead(slot, [&](u32 each) {
            dead = true;
            if (attachment_.participant().marked_active(each)) died(each);
            notices_.clear(each);
            count(ServiceCount::recovered);
        });
        return dead;
    }
    bool reap(u32 element) {
        return elements_.reap(element, me_, [&](u32 each) {
            if (attachment_.participant().marked_active(each)) died(each);
            notices_.clear(each);
            count(ServiceCount::recovered);
        });
    }
    // Asks now and then whether another participant died, so that its samples come back although nothing waits for them.
    void tick() {
        attachment_.tick([this](u32 slot) {
            if (slot != plan_.slots().provider()) clear_if_dead(slot);
        });
    }
    void wake(u32* bell) {
        ring_bell(memory_, bell);
        memory_.wake(
            bell);  // the ring wakes no thread that listened, and was woken by another ring
    }
    void damaged(const Fault& fault) {
        fault_ = fault;
        count(ServiceCount::corrupt);
    }

    std::string name_;
    ServicePlan plan_;
    Attachment attachment_;
    NativeMemory memory_;
    Elements<NativeMemory> elements_;
    Notices<NativeMemory> notices_;
    Fault fault_{};
    u32 me_ = 0;

 private:
    // The last holder of `slot` is gone without a word: the provider is told.
    void died(u32 slot) {
        const ParticipantInfo info = info_of(slot);
        char application[sizeof(IdentityEntry)];
        std::memcpy(application, at<IdentityEntry>(plan_.identities_offset())[slot].application,
                    sizeof application);
        if (!notices_.post(me_, info.pid, info.since_ticks, application))
            count(ServiceCount::unheard);
        ring_bell(memory_, provider_bell());
    }

    void write_application(const std::string& application) {
        char* text = at<IdentityEntry>(plan_.identities_offset())[me_].application;
        std::memset(text, 0, sizeof(IdentityEntry));
        std::memcpy(text, application.data(),
                    std::min(application.size(), sizeof(IdentityEntry) - 1));
    }
};

}  // namespace holdfast
