"""An analyst's questions about attributes together: tables, tests, groups, regressions."""

from abc import abstractmethod
from typing import Any, Unpack

from hearsay.asking import formulas
from hearsay.asking.answer import Answer
from hearsay.asking.selection import LONG, Selection, fields, warned
from hearsay.checking.calls import AnalystCalls
from hearsay.plans import plan as plans
from hearsay.v1 import admin_pb2, analyst_pb2


class Together:
    """The questions of `Analyst` that are answered from the stored records, not from tallies.

    They need records that report the attributes together, as those of a split budget do, and rows
    that the retention has not dropped. The server reads all of them: that takes time.
    """

    _calls: AnalystCalls

    @abstractmethod
    def show_survey(self, survey: str) -> admin_pb2.ShowSurveyResponse:
        """Return a survey's plan, and how many reports it holds, as a message."""

    def crosstab(
        self,
        survey: str,
        attribute: str,
        other: str,
        *,
        confidence: float = 0.95,
        simultaneous: bool = False,
        method: str = "",
        nonnegative: bool = False,
        **selection: Unpack[Selection],
    ) -> Answer:
        """Return the joint table of two categorical attributes, a row for each pair of values.

        Indexed by both values; `to_frame()["estimate"].unstack()` is the table. Columns: estimate
        (the share of people with both values: unbiased, and so possibly negative), standard_error,
        low and high. With `nonnegative` the estimate is the most likely distribution, and raw the
        unbiased share. Only records that report both attributes count. With several levels the
        table is of the people who answered; `method="gls"` pools levels as if their people answered
        alike. The answer holds the survey, attribute and other, confidence, method, the number
        of records (reports), repeats, warning, and chi2: the test of `chi2_contingency`.
        """
        request = analyst_pb2.CrosstabRequest(
            survey=survey,
            attribute=attribute,
            other=other,
            confidence=confidence,
            simultaneous=simultaneous,
            method=method,
            nonnegative=nonnegative,
            **fields(selection, Selection),
        )
        return warned(self._calls.ask("Answers/Crosstab", request, LONG))

    def chi2_contingency(
        self, survey: str, attribute: str, other: str, **selection: Unpack[Selection]
    ) -> Answer:
        """Return the test that two categorical attributes are independent.

        statistic (nearly chi-squared if they are), dof, pvalue, noncentrality (an estimate; 0 where
        the statistic is not above its mean), detectable: the noncentrality that a test at
        significance 0.05 finds in 80% of cases, and reports. It is a test within every level,
        whose statistics are added up; with reports of several periods it allows for people who
        answered in several, and says "dependent" too rarely rather than too often.
        """
        request = analyst_pb2.CrosstabRequest(
            survey=survey,
            attribute=attribute,
            other=other,
            view="independent",
            **fields(selection, Selection),
        )
        return warned(self._calls.ask("Answers/Crosstab", request, LONG))

    def within(
        self,
        survey: str,
        attribute: str,
        by: str,
        *,
        reference: str = "",
        confidence: float = 0.95,
        simultaneous: bool = False,
        method: str = "",
        **selection: Unpack[Selection],
    ) -> Answer:
        """Return an attribute's shares, or a number's mean, within each group of another attribute.

        Indexed by group, a value of `by`, and value. Columns: estimate, standard_error, low and
        high, Fieller's. The table "groups" has the groups' own shares, and "differences" by how
        much they differ, all pairs or each from `reference`, one of the groups. A group of which
        too few people are known has intervals of all of the range, and a warning.
        """
        request = groups_request(
            survey,
            attribute,
            by,
            reference=reference,
            confidence=confidence,
            simultaneous=simultaneous,
            method=method,
            selection=selection,
        )
        return warned(self._calls.ask("Answers/CompareGroups", request, LONG))

    def ols(
        self,
        survey: str,
        formula: str,
        *,
        success: str = "",
        confidence: float = 0.95,
        simultaneous: bool = False,
        **selection: Unpack[Selection],
    ) -> Answer:
        """Return a linear regression, such as `ols("pay", "wage ~ age + C(sex)")`: a row per term.

        Columns: estimate, standard_error, z, p_value, low and high (of the interval), and naive:
        what least squares gives for randomised answers taken as true ones. Estimates are
        consistent, and errors hold whatever the residuals' distribution. A regressor that is a
        number must be collected by a mechanism that tells of its square, as piecewise does. With
        `success` the response is whether an attribute has this value. The formula has attributes,
        C(attribute), C(attribute, Treatment("reference")), and + : * - 1. The answer holds the
        survey, formula, attribute (what is explained), method, confidence, n and reports (the
        records), repeats and warning. Needs formulaic.
        """
        return self._fitted(
            survey, formula, False, success, "", confidence, simultaneous, selection
        )

    def logit(
        self,
        survey: str,
        formula: str,
        *,
        success: str = "",
        method: str = "",
        confidence: float = 0.95,
        simultaneous: bool = False,
        **selection: Unpack[Selection],
    ) -> Answer:
        """Return a logistic regression of whether an attribute has a value on categories.

        As `ols`. `success` is the value that is explained, by default the second of two; the
        coefficients are logarithms of odds ratios. `method` is "corrected" (the default), by an
        unbiased score, or "forward", by maximum likelihood.
        """
        return self._fitted(
            survey, formula, True, success, method, confidence, simultaneous, selection
        )

    def _fitted(
        self,
        survey: str,
        formula: str,
        logistic: bool,
        success: str,
        method: str,
        confidence: float,
        simultaneous: bool,
        selection: Selection,
    ) -> Answer:
        formula = " ".join(formula.split())  # a title is one line, a program's text may be several
        model = self.model(survey, formula, logistic=logistic, success=success)
        kind = analyst_pb2.FitRequest
        chosen: dict[str, Any] = fields(selection, Selection)
        request = kind(
            survey=survey,
            family=kind.LOGISTIC if logistic else kind.LINEAR,
            response=model.response,
            columns=model.columns,
            method=method,
            confidence=confidence,
            simultaneous=simultaneous,
            formula=formula,
            **chosen,
        )
        return warned(self._calls.ask("Answers/Fit", request, LONG))

    # --- the same as messages, without pandas ----------------------------------------------

    def model(
        self, survey: str, formula: str, *, logistic: bool = False, success: str = ""
    ) -> formulas.Model:
        """Return the model of a formula about a survey's attributes, as `formulas.parse`."""
        attributes = plans.parse(self.show_survey(survey).plan).attributes
        return formulas.parse(formula, attributes, logistic=logistic, success=success)


def groups_request(
    survey: str,
    attribute: str,
    by: str,
    *,
    reference: str = "",
    confidence: float = 0.95,
    simultaneous: bool = False,
    method: str = "",
    view: str = "",
    selection: Selection,
) -> analyst_pb2.CompareGroupsRequest:
    """Return the request of `Analyst.within` and of `Analyst.compare` with `by`."""
    chosen: dict[str, Any] = fields(selection, Selection)
    return analyst_pb2.CompareGroupsRequest(
        survey=survey,
        attribute=attribute,
        by=by,
        reference=reference,
        confidence=confidence,
        simultaneous=simultaneous,
        method=method,
        view=view,
        **chosen,
    )
