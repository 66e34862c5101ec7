//! Promises about full-text search.

mod documents;
mod queries;

promises! {
    /// A search finds mail of one team by its words, by fields and by exact names, newest first.
    queries "Queries" {
        /// Emails and messages are found by words and phrases, and by those of a field.
        mail_is_found_by_words_and_fields,
        /// An excluded word excludes mail, also from a query of excluded words alone.
        excluded_words_exclude_mail,
        /// A phrase matches only words that follow each other in one field.
        a_phrase_stays_within_a_field,
        /// Operators of a database's query language are ordinary words.
        operators_of_query_languages_are_ordinary_words,
        /// Ideographs are found without spaces between them.
        ideographs_are_found_without_spaces,
        /// Mail is found by its exact names, such as the Message-ID.
        mail_is_found_by_exact_names,
        /// Mail is found by its time, to the millisecond.
        mail_is_found_by_its_time,
        /// A search for mail of some inboxes finds their messages and the emails from their addresses.
        a_search_can_be_limited_to_inboxes,
        /// A search for a state finds mail that is in it now.
        a_search_for_a_state_follows_the_mail,
        /// A search for named mails finds those of them that match.
        a_search_can_be_limited_to_named_mails,
        /// Results are newest first, and pages neither repeat nor omit one when mail is added between them.
        pages_are_newest_first_and_stable,
        /// Mail of another team is not found, not even by its exact names.
        mail_of_another_team_is_not_found,
    }

    /// Documents are added after the accept, once each, and erased in the transaction that deletes their mail.
    documents "Documents" {
        /// A team is behind until its latest event is indexed.
        a_team_is_behind_until_its_latest_event_is_indexed,
        /// Of 16 concurrent workers one indexes an event.
        of_16_concurrent_workers_one_indexes_an_event,
        /// Indexing a mail again changes nothing.
        indexing_a_mail_again_changes_nothing,
        /// The bodies that are read at once are bounded, and a large one is read alone.
        the_bodies_read_at_once_are_bounded,
        /// When a body is deleted, its words are not found any more; addresses and subject are.
        a_deleted_body_is_erased_from_search,
        /// When an email is deleted, nothing of it is found.
        a_deleted_email_is_erased_from_search,
        /// Messages of a removed inbox are not found, before and after they are deleted.
        messages_of_a_removed_inbox_are_not_found,
        /// A document of a mail that was deleted in the meantime is not added.
        a_document_of_a_deleted_mail_is_not_added,
        /// Mail that is deleted while it is indexed leaves no document.
        mail_deleted_while_it_is_indexed_leaves_no_document,
    }
}
